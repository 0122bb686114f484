/* SPDX-License-Identifier: Apache-2.0 */
/* cistern hydrate URI DIR, and cistern hydrate --volume DIR: copies a bucket to disk. */
#include "cistern.h"
#include "cli/exit.h"
#include "cli/term.h"
#include "estimate.h"
#include "hydrate/engine.h"
#include "io/probe.h"
#include "pool/volume.h"
#include "store/single.h"
#include "util/budget.h"
#include "util/clock.h"
#include "util/file.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

static const char usage[] = "Usage: cistern hydrate URI DIR [flags]\n"
                            "       cistern hydrate --volume DIR\n\n"
                            "Copies the objects below URI (s3://bucket/prefix/, gs://bucket/prefix/, file:///dir/) to "
                            "DIR. Each object is pinned to\n"
                            "the version that was listed, and verified by the store's strongest checksum. A URI "
                            "without a trailing '/' names one\n"
                            "object. A new DIR is built as .DIR.cistern beside it, and appears at the end, without the "
                            "objects that failed: they\n"
                            "are reported, and the exit code is not 0. Run the same command again to continue an "
                            "interrupted or failed run, and to\n"
                            "sync a finished DIR: only new and changed objects are fetched. Files in DIR that no "
                            "hydration wrote, or that were\n"
                            "changed since, are kept and reported, and the exit code is 1. A record of the versions "
                            "stays in .DIR.cistern; without\n"
                            "it, files are compared by size and time.\n\n"
                            "  cistern hydrate s3://bucket/dataset/ ./dataset --exclude '*.tmp'\n"
                            "  cistern hydrate gs://bucket/model/weights.bin ./model\n\nFlags:\n";

static struct {
    const char *volume;
    struct opt_list include, exclude, priority;
    bool dry_run, fresh, resume, overwrite, delete, allow_empty, skip_missing, fsync, no_uring, no_direct;
    const char *verify, *shard;
    uint64_t concurrency, bandwidth, memory, workers, max_errors, barrier_ns;
    struct estimate_terms terms;
} flags = {.terms = ESTIMATE_TERMS(512)};

static const struct opt table[] = {
    FILTER_OPTS(flags.include, flags.exclude),
    {"priority", 0, OPT_PATTERNS, &flags.priority, "GLOB", "fetch matching objects first (repeatable, in this order)"},
    {"shard", 0, OPT_TEXT, &flags.shard, "I/N", "fetch only part I of N parts of equal bytes: 0/4 to 3/4"},
    {"dry-run", 0, OPT_FLAG, &flags.dry_run, NULL,
     "count the objects and estimate requests, time and price; fetch nothing"},
    ESTIMATE_OPTS(flags.terms),
    {"resume", 0, OPT_FLAG, &flags.resume, NULL, "continue an earlier run (default; --no-resume starts over)"},
    {"overwrite", 0, OPT_FLAG, &flags.overwrite, NULL,
     "replace files in DIR that no hydration wrote (default: keep them, exit 1)"},
    {"delete", 0, OPT_FLAG, &flags.delete, NULL, "remove files of DIR that were hydrated and whose objects are gone"},
    {"verify", 0, OPT_TEXT, &flags.verify, "HOW",
     "verify by the strongest checksum, by size, or not: auto, size, none (auto)"},
    {"concurrency", 0, OPT_U64, &flags.concurrency, "N",
     "run at most N requests at once, 1 to 512 (512, or one per MiB of the memory limit)", .least = 1, .most = 512},
    {"bandwidth", 0, OPT_BYTES, &flags.bandwidth, "RATE",
     "receive at most RATE bytes a second, such as 100M (no limit)", .least = 1},
    {"memory", 0, OPT_BYTES, &flags.memory, "SIZE",
     "buffer at most SIZE bytes in flight, 1Mi or more (128Mi, or a quarter of the memory limit)",
     .least = SLICE_BYTES},
    {"workers", 0, OPT_U64, &flags.workers, "N", "run N threads, 1 to 32 (processors + 1, at most 16)", .least = 1,
     .most = WORKERS_MAX},
    {"max-errors", 0, OPT_U64, &flags.max_errors, "N", "give up after more than N failed objects (1000)", .least = 1},
    {"allow-empty", 0, OPT_FLAG, &flags.allow_empty, NULL, "accept a URI that selects no object (default: exit 9)"},
    {"skip-missing", 0, OPT_FLAG, &flags.skip_missing, NULL, "skip objects that were deleted after the listing"},
    {"fsync", 0, OPT_FLAG, &flags.fsync, NULL, "flush all data to disk before returning (always for volumes)"},
    {"barrier", 0, OPT_DURATION, &flags.barrier_ns, "TIME", "flush progress to disk at this interval (15s)",
     .least = 1},
    {"no-direct", 0, OPT_FLAG, &flags.no_direct, NULL, "write large objects through the page cache"},
    {"no-io-uring", 0, OPT_FLAG, &flags.no_uring, NULL, "write with threads instead of io_uring"},
    {"volume", 0, OPT_TEXT, &flags.volume, "DIR", "fill a volume (<pool>/volumes/<id>) as its volume.json specifies"},
    COPY_HABITS(flags.concurrency),
    {0},
};

struct hydrate_cmd {
    struct store *stores[HYDRATE_SOURCES_MAX]; /* owned */
    struct filter filters[HYDRATE_SOURCES_MAX];
    struct hydrate_source sources[HYDRATE_SOURCES_MAX];
    struct hydrate_options options;
    struct volume *volume; /* owned */
    struct term term;
};

static void run_done(struct hydrate_cmd *r)
{
    for (size_t i = 0; i < r->options.source_count; i++) {
        store_free(r->stores[i]);
        filter_done(&r->filters[i]);
    }
    volume_close(r->volume);
}

static int add_source(struct hydrate_cmd *run, const struct store_options *o, const char *uri, const char *sub_path,
                      struct err *err)
{
    size_t at = run->options.source_count;
    int r = store_open(o, &run->stores[at], err);
    if (r < 0)
        return r;
    run->sources[at] = (struct hydrate_source){
        .store = run->stores[at], .uri = uri, .sub_path = sub_path, .filter = &run->filters[at]};
    run->options.sources = run->sources;
    run->options.source_count++;
    return 0;
}

static int parse_shard(const char *text, struct shard *ret, struct err *err)
{
    if (flags.dry_run)
        return err_set(err, ERR_INVALID, "--dry-run counts all objects: remove --shard");
    int r = shard_parse(str_of(text), ret, err);
    return r < 0 ? err_wrap(err, "--shard") : 0;
}

static const char *const verify_names[] = {
    [HYDRATE_VERIFY_AUTO] = "auto", [HYDRATE_VERIFY_SIZE] = "size", [HYDRATE_VERIFY_NONE] = "none"};

static int from_flags(struct hydrate_cmd *run, const char *uri, struct err *err)
{
    struct store_options o = store_defaults(uri);
    struct hydrate_options *h = &run->options;
    unsigned verify = HYDRATE_VERIFY_AUTO;
    *h = (struct hydrate_options){.priorities = flags.priority.items,
                                  .priority_count = flags.priority.count,
                                  .concurrency_max = (unsigned)flags.concurrency,
                                  .bytes_per_second = flags.bandwidth,
                                  .memory_bytes = flags.memory,
                                  .workers = (unsigned)flags.workers,
                                  .errors_max = flags.max_errors,
                                  .direct = flags.no_direct ? HYDRATE_DIRECT_OFF : HYDRATE_DIRECT_AUTO,
                                  .allow_empty = flags.allow_empty,
                                  .skip_missing = flags.skip_missing,
                                  .size_check = true,
                                  .fresh = !flags.resume,
                                  .delete_gone = flags.delete,
                                  .overwrite = flags.overwrite,
                                  .barrier_ns = flags.barrier_ns,
                                  .stall_ns = request_stall_ns(WEB_STALL_NS),
                                  .durable = flags.fsync,
                                  .no_uring = flags.no_uring};
    int r = 0;
    if (flags.priority.count > HYDRATE_PRIORITIES_MAX)
        r = err_set(err, ERR_INVALID, "--priority was given more than %d times", HYDRATE_PRIORITIES_MAX);
    if (r == 0 && flags.shard)
        r = parse_shard(flags.shard, &h->shard, err);
    if (r == 0)
        r = parse_choice("--verify", flags.verify, verify_names, countof(verify_names), &verify, err);
    h->verify = (enum hydrate_verify)verify;
    if (r == 0)
        r = filter_fill(&run->filters[0], flags.include.items, flags.include.count, flags.exclude.items,
                        flags.exclude.count, err);
    return r == 0 ? add_source(run, &o, uri, NULL, err) : r;
}

/* ---- a volume ---------------------------------------------------------------------------------------------------- */

static int volume_sources(struct hydrate_cmd *run, const struct spec *spec, struct err *err)
{
    const struct spec_source *s = &spec->source;
    for (size_t i = 0; i < spec_source_count(spec); i++) {
        struct spec_part part = spec_source_at(spec, i);
        struct store_options o = store_defaults(part.uri.text);
        o.endpoint = s->endpoint ? s->endpoint : o.endpoint;
        o.region = s->region ? s->region : o.region;
        o.ca = s->ca_bundle ? str_of(s->ca_bundle) : STR_NULL;
        o.path_style |= s->path_style;
        o.billing = s->requester_pays ? s->requester_pays : o.billing;
        if (s->identity == IDENTITY_ANONYMOUS)
            o.auth = STORE_AUTH_ANONYMOUS;
        o.retry = store_retry_of(s);
        int r = filter_fill(&run->filters[i], (const char *const *)part.include.items, part.include.count,
                            (const char *const *)part.exclude.items, part.exclude.count, err);
        if (r == 0)
            r = add_source(run, &o, part.uri.text, part.sub_path ? part.sub_path : s->layout.sub_path, err);
        run->sources[i].keeps_prefix = !s->layout.strip_prefix;
        if (r < 0)
            return r;
    }
    return 0;
}

static_assert((int)SPEC_PRIORITIES_MAX <= (int)HYDRATE_PRIORITIES_MAX, "the engine takes all priorities of a volume");
static_assert((int)SPEC_SHARDS_MAX <= (int)SHARDS_MAX, "the engine takes all shards of a volume");

static int from_volume(struct hydrate_cmd *run, struct target **ret, struct err *err)
{
    int r = open_named_volume(flags.volume, &run->volume, err);
    if (r < 0)
        return r;
    const struct spec *spec = run->volume->spec;
    run->options = (struct hydrate_options){
        .priorities = (const char *const *)spec->source.priority.items,
        .priority_count = spec->source.priority.count,
        .concurrency_max = (unsigned)spec->params.concurrency,
        .bytes_per_second = spec->params.bandwidth,
        .verify = spec->params.verify == VERIFY_SIZE   ? HYDRATE_VERIFY_SIZE
                  : spec->params.verify == VERIFY_NONE ? HYDRATE_VERIFY_NONE
                                                       : HYDRATE_VERIFY_AUTO,
        .direct = spec->params.direct_io == DIRECT_IO_OFF  ? HYDRATE_DIRECT_OFF
                  : spec->params.direct_io == DIRECT_IO_ON ? HYDRATE_DIRECT_ON
                                                           : HYDRATE_DIRECT_AUTO,
        .shard = {(unsigned)spec->source.shard_index, (unsigned)spec->source.shard_count},
        .allow_empty = spec->source.on_empty == ON_EMPTY_ALLOW,
        .skip_missing = spec->source.on_missing == ON_MISSING_SKIP,
        .size_check = spec->source.size_check,
        .fresh = !flags.resume,
        .barrier_ns = flags.barrier_ns,
        .stall_ns = request_stall_ns(WEB_STALL_NS),
    };
    r = volume_sources(run, spec, err);
    if (r < 0)
        return r;
    auto_fd data = -1;
    r = volume_data(run->volume, &data, err);
    if (r == 0)
        r = target_open_volume(run->volume->dir, data, ret, err);
    if (r < 0)
        return r;
    (*ret)->file_mode = (mode_t)spec->source.layout.file_mode;
    (*ret)->dir_mode = (mode_t)spec->source.layout.dir_mode;
    (*ret)->uid = (uint32_t)spec->source.layout.uid;
    (*ret)->gid = (uint32_t)spec->source.layout.gid;
    umask(0); /* the volume's modes apply, not the caller's */
    return 0;
}

/* ---- while it runs ----------------------------------------------------------------------------------------------- */

static void print_faults(struct hydrate_cmd *run, struct hydrate *h)
{
    static struct hydrate_fault f;
    while (hydrate_next_fault(h, &f))
        term_fault(&run->term, str_of(f.object), f.id, f.code, f.message);
}

static void show(struct hydrate_cmd *run, struct hydrate *h, struct hydrate_status *s)
{
    char slowest[256], retry[RETRY_TEXT_MAX];
    hydrate_status(h, s);
    hydrate_slowest(h, slowest, sizeof slowest);
    struct term_progress p = {.what = hydrate_phase_name(s->phase),
                              .bytes = s->bytes_done,
                              .bytes_total = s->bytes_total,
                              .objects = s->objects_done,
                              .objects_total = s->objects_total,
                              .errors = s->objects_failed,
                              .retries = retry_count(run->stores, run->options.source_count),
                              .rate = (double)s->bytes_per_second,
                              .total_is_final = s->phase != HYDRATE_LISTING,
                              .slowest = str_of(slowest),
                              .retry = retry_text(run->stores, run->options.source_count, retry)};
    print_faults(run, h);
    if (!hydrate_has_ended(h))
        term_progress(&run->term, &p);
}

static void watch(struct hydrate_cmd *run, struct hydrate *h, int signals)
{
    static struct hydrate_status s;
    struct retry_reload reload = {.volume_dir = flags.volume};
    while (!hydrate_has_ended(h)) {
        probe_beat();
        struct pollfd p[] = {{.fd = hydrate_fd(h), .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        if (poll(p, countof(p), 200) > 0 && p[1].revents) {
            struct signalfd_siginfo info;
            if (read(signals, &info, sizeof info) == sizeof info)
                hydrate_cancel(h);
        }
        retry_reload(&reload, run->stores, run->options.source_count);
        show(run, h, &s);
    }
    print_faults(run, h);
    term_clear(&run->term);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void print_skipped(const struct hydrate_listing *l)
{
    auto_sbuf b = SBUF(TERM_LINE_MAX);
    term_add_visible(&b, str_of(l->last_skipped), 200);
    printf(", skipped %" PRIu64 " names that are not regular files (the last: '%s')", l->names_skipped, b.ptr);
}

/* How the files that DIR had before the run compare with the source. */
static void print_sync(const struct hydrate_status *s)
{
    uint64_t fetched = s->objects_done - s->sync.objects_same, changed = min_u64(s->sync.objects_changed, fetched);
    printf("synced: new %" PRIu64 ", changed %" PRIu64 ", same %" PRIu64 ", kept %" PRIu64 ", deleted %" PRIu64,
           fetched - changed, changed, s->sync.objects_same, s->objects_kept, s->sync.files_deleted);
    if (s->sync.files_gone)
        printf("; %" PRIu64 " files stay whose objects are gone: --delete removes them", s->sync.files_gone);
    printf("\n");
}

static void add_sync_json(struct sbuf *b, const struct hydrate_status *s)
{
    uint64_t fetched = s->objects_done - s->sync.objects_same, changed = min_u64(s->sync.objects_changed, fetched);
    term_json_u64(b, "new", fetched - changed);
    term_json_u64(b, "changed", changed);
    term_json_u64(b, "same", s->sync.objects_same);
    term_json_u64(b, "deleted", s->sync.files_deleted);
    term_json_u64(b, "gone", s->sync.files_gone);
}

static void print_summary(const struct hydrate_cmd *run, const struct hydrate_status *s, uint64_t started_ns)
{
    char bytes[BYTES_TEXT_MAX], rate[BYTES_TEXT_MAX], took[TIME_TEXT_MAX];
    uint64_t ns = clock_now_ns() - started_ns;
    uint64_t verified = s->objects_done - s->objects_size_only - (s->sync.known ? s->sync.objects_same : 0);
    if (run->term.form == TERM_JSON) {
        auto_sbuf b = SBUF(TERM_LINE_MAX);
        term_json_begin(&b, "summary");
        term_json_str(&b, "phase", str_of(hydrate_phase_name(s->phase)));
        term_json_u64(&b, "found", s->objects_total);
        term_json_u64(&b, "hydrated", s->objects_done);
        term_json_u64(&b, "verified", verified);
        term_json_u64(&b, "size_only", s->objects_size_only);
        term_json_u64(&b, "failed", s->objects_failed);
        term_json_u64(&b, "missing", s->objects_missing);
        term_json_u64(&b, "kept", s->objects_kept);
        if (s->sync.known)
            add_sync_json(&b, s);
        term_json_u64(&b, "skipped", s->listing.names_skipped);
        if (s->listing.names_skipped)
            term_json_str(&b, "last_skipped", str_of(s->listing.last_skipped));
        term_json_u64(&b, "bytes", s->bytes_done);
        term_json_u64(&b, "bytes_total", s->bytes_total);
        term_json_u64(&b, "requests", s->requests);
        term_json_u64(&b, "hedged", s->hedged);
        term_json_real(&b, "seconds", (double)ns / (double)NS_PER_SECOND);
        term_json_end(&b, stdout);
        return;
    }
    if (run->term.form == TERM_QUIET)
        return;
    printf("%s: found %" PRIu64 ", hydrated %" PRIu64 ", verified %" PRIu64, hydrate_phase_name(s->phase),
           s->objects_total, s->objects_done, verified);
    if (s->objects_size_only)
        printf(" (%" PRIu64 " verified by size only: the store has no checksum for them)", s->objects_size_only);
    if (s->objects_failed)
        printf(", failed %" PRIu64, s->objects_failed);
    if (s->objects_kept)
        printf(", kept %" PRIu64 " files that no hydration wrote", s->objects_kept);
    if (s->objects_missing)
        printf(", skipped %" PRIu64 " deleted objects", s->objects_missing);
    if (s->listing.names_skipped)
        print_skipped(&s->listing);
    uint64_t fetched = s->bytes_done - min_u64(s->sync.bytes_same, s->bytes_done);
    printf("; %s in %s, %s/s, %" PRIu64 " requests", bytes_text(fetched, bytes), duration_text(ns, took),
           bytes_text((uint64_t)((double)fetched * 1e9 / (double)(ns ? ns : 1)), rate), s->requests);
    if (s->hedged)
        printf(" (%" PRIu64 " of them hedged)", s->hedged);
    printf("\n");
    if (s->sync.known && s->objects_total > 0)
        print_sync(s);
}

static int exit_of(struct hydrate *h, const struct hydrate_status *s)
{
    if (s->phase == HYDRATE_STOPPED) {
        if (!globals.quiet && !globals.json)
            fprintf(stderr, "cistern: interrupted; run the same command again to continue\n");
        return EXIT_INTERRUPTED;
    }
    if (s->phase == HYDRATE_DONE)
        return EXIT_DONE;
    if (hydrate_found_nothing(h))
        return EXIT_EMPTY;
    if (!hydrate_is_incomplete(h))
        return (int)exit_code_of(s->error.code);
    enum err_code common = hydrate_common_fault(h);
    int code = common ? (int)exit_code_of(common) : EXIT_SOME_FAILED;
    bool is_specific = code == EXIT_DENIED || code == EXIT_TRANSIENT || code == EXIT_MISMATCH;
    return is_specific ? code : EXIT_SOME_FAILED;
}

static void print_unnamed(struct hydrate_cmd *run, struct hydrate *h)
{
    char line[128];
    uint64_t unnamed = hydrate_faults_unnamed(h);
    snprintf(line, sizeof line, "%" PRIu64 " more objects failed and are not listed", unnamed);
    if (unnamed)
        term_fault(&run->term, STR_NULL, CIS_OBJECTS_FAILED, ERR_IO, line);
}

static int end(struct hydrate_cmd *run, struct hydrate *h, uint64_t started_ns)
{
    static struct hydrate_status s;
    hydrate_status(h, &s);
    print_unnamed(run, h);
    if (s.has_error)
        term_fault(&run->term, STR_NULL, s.error.id, s.error.code, s.error.message);
    print_summary(run, &s, started_ns);
    return exit_of(h, &s);
}

static int block_signals(struct err *err)
{
    sigset_t set = ending_signals();
    /* Before the first thread: all threads inherit the mask, and main reads the signals. */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? err_sys(err, errno, "cannot open a signalfd") : fd;
}

static int run_it(struct hydrate_cmd *run, struct target *own_target, const char *dir, struct err *err)
{
    uint64_t started_ns = clock_now_ns();
    auto_target target = own_target;
    auto_fd signals = block_signals(err);
    if (signals < 0)
        return (int)exit_with(err, globals.json);
    fd_limit_raise();
    if (flags.volume && probe_serve("hydrate", flags.volume, err) < 0)
        return (int)exit_with(err, globals.json);
    auto_hydrate h = NULL;
    if (hydrate_start(&run->options, take(&target), &h, err) < 0) {
        err_wrap(err, "hydrate '%s'", dir);
        return (int)exit_with(err, globals.json);
    }
    watch(run, h, signals);
    return end(run, h, started_ns);
}

static int dry_run(const struct hydrate_cmd *run)
{
    flags.terms.bytes_per_second = run->options.bytes_per_second;
    flags.terms.concurrency = run->options.concurrency_max;
    return ls_sum(run->stores[0], run->sources[0].uri, &run->filters[0], flags.allow_empty, &flags.terms);
}

static int check_usage(int argc, char **argv, struct err *err)
{
    static const char *const of_volume[] = {"volume", "resume", "barrier", "price-read", "price-write", NULL};
    if (flags.volume && argc != 1)
        return err_set(err, ERR_INVALID, "--volume names URI and DIR already: remove the arguments");
    if (!flags.volume && argc > 3)
        return err_set(err, ERR_INVALID, "unexpected argument '%s'; see `cistern hydrate --help`", argv[3]);
    if (!flags.volume && argc != 3)
        return err_set(err, ERR_INVALID, "hydrate needs URI and DIR; see `cistern hydrate --help`");
    if (flags.volume)
        return check_volume_flags(table, of_volume, err);
    int r = estimate_check(&flags.terms, flags.dry_run, err);
    if (r < 0)
        return r;
    if (!strstr(argv[1], "://") && strstr(argv[2], "://"))
        return err_set(err, ERR_INVALID,
                       "hydrate copies URI to DIR: `cistern hydrate %s %s`; `cistern export` is the way back", argv[2],
                       argv[1]);
    return check_dir_argument(argv[2], argv[1], argv[2], err);
}

/* Each run would copy the copies of the run before. */
static int check_apart(const struct hydrate_cmd *run, const char *dir, struct err *err)
{
    const struct store *s = run->stores[0];
    if (store_endpoint(s) || store_names_object(s) || !path_is_within(dir, store_bucket(s).ptr))
        return 0;
    return err_set(err, ERR_INVALID, "'%s' is inside its source '%s': choose a DIR outside of it", dir,
                   run->sources[0].uri);
}

int verb_hydrate(int argc, char **argv)
{
    struct err err;
    flags.resume = true;
    int code = verb_begin(table, usage, &argc, argv);
    if (code >= 0)
        return code;
    if (check_usage(argc, argv, &err) < 0)
        return (int)exit_with(&err, globals.json);
    auto_with(run_done) struct hydrate_cmd run = {0};
    term_init(&run.term, globals.json, globals.quiet, globals.no_progress);
    struct target *target = NULL;
    int r = flags.volume ? from_volume(&run, &target, &err) : from_flags(&run, argv[1], &err);
    if (r == 0 && flags.dry_run)
        return dry_run(&run);
    if (r == 0 && !flags.volume)
        r = check_apart(&run, argv[2], &err);
    if (r == 0 && !flags.volume)
        r = target_open_dir(argv[2], &target, &err);
    if (r < 0) {
        err_wrap(&err, "hydrate");
        return (int)exit_with(&err, globals.json);
    }
    return run_it(&run, target, flags.volume ? flags.volume : argv[2], &err);
}
