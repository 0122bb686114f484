/* SPDX-License-Identifier: Apache-2.0 */
/* cistern hydrate URI DIR, and cistern hydrate --volume FOLDER: bucket to disk. */
#include "cistern.h"
#include "cli/exit.h"
#include "cli/term.h"
#include "hydrate/engine.h"
#include "util/clock.h"
#include "util/file.h"
#include "volume/volume.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

static const char usage[] =
    "Usage: cistern hydrate URI DIR [flags]\n"
    "       cistern hydrate --volume FOLDER\n\n"
    "Brings what is below URI (s3://bucket/prefix/, gs://bucket/prefix/, file:///folder/) to DIR: every object pinned "
    "to\n"
    "the generation that was listed, checked by the strongest checksum that the store gives. A trailing '/' means all\n"
    "below; without one, the object of that name. Interrupted, killed or failed, the same command continues. Files in "
    "DIR\n"
    "that no hydration wrote, or that were changed since, are kept and named, and the exit code is 1.\n\n"
    "  cistern hydrate s3://bucket/dataset/ ./dataset --exclude '*.tmp'\n"
    "  cistern hydrate gs://bucket/model/weights.bin ./model\n\nFlags:\n";

static struct {
    const char *volume;
    struct opt_list include, exclude, priority;
    bool dry_run, fresh, resume, overwrite, fail_if_empty, skip_missing, fsync, no_uring, no_direct;
    const char *verify, *shard;
    uint64_t concurrency, bandwidth, memory, workers, max_errors, barrier_ns;
} flags;

static const struct opt table[] = {
    {"include", 0, OPT_LIST, &flags.include, "GLOB", "only what matches (again for more; ** crosses slashes)"},
    {"exclude", 0, OPT_LIST, &flags.exclude, "GLOB", "nothing that matches; wins over --include"},
    {"priority", 0, OPT_LIST, &flags.priority, "GLOB", "fetch these first, in the order given"},
    {"shard", 0, OPT_TEXT, &flags.shard, "I/N", "only this part of N that have the same bytes: 0/4, 1/4, 2/4 or 3/4"},
    {"dry-run", 0, OPT_FLAG, &flags.dry_run, NULL, "list and count, fetch nothing"},
    {"resume", 0, OPT_FLAG, &flags.resume, NULL, "continue an earlier run (the default); --no-resume starts over"},
    {"overwrite", 0, OPT_FLAG, &flags.overwrite, NULL,
     "replace files in DIR that no hydration has written (they are kept and named, exit 1)"},
    {"verify", 0, OPT_TEXT, &flags.verify, "HOW", "auto (the strongest checksum there is), size or none"},
    {"concurrency", 0, OPT_U64, &flags.concurrency, "N",
     "requests at once at the most, 1 to 512 (512, less where memory is little; adapts below it)"},
    {"bandwidth", 0, OPT_BYTES, &flags.bandwidth, "RATE", "bytes a second at the most: 100M, 1.5Gi (no limit)"},
    {"memory", 0, OPT_BYTES, &flags.memory, "SIZE",
     "of bytes in flight at the most (128Mi, or a quarter of the control group's limit)"},
    {"workers", 0, OPT_U64, &flags.workers, "N", "threads, 1 to 32 (one more than processors, 16 at the most)"},
    {"max-errors", 0, OPT_U64, &flags.max_errors, "N", "give up when more objects than this failed (1000)"},
    {"fail-if-empty", 0, OPT_FLAG, &flags.fail_if_empty, NULL, "exit 9 when nothing matched"},
    {"skip-missing", 0, OPT_FLAG, &flags.skip_missing, NULL, "leave out objects that are gone since they were listed"},
    {"fsync", 0, OPT_FLAG, &flags.fsync, NULL, "return only when a power loss can take nothing (volumes: always)"},
    {"barrier", 0, OPT_DURATION, &flags.barrier_ns, "TIME",
     "a power loss costs this much of the run at the most (15s)"},
    {"no-direct", 0, OPT_FLAG, &flags.no_direct, NULL, "write large objects through the page cache"},
    {"no-io-uring", 0, OPT_FLAG, &flags.no_uring, NULL, "write with a pool of threads instead"},
    {"volume", 0, OPT_TEXT, &flags.volume, "FOLDER", "fill a volume (<pool>/volumes/<id>) as its volume.json says"},
    {0},
};

/* All that a run stands on. */
struct run {
    struct store *stores[HYDRATE_SOURCES_MAX]; /* owned */
    struct filter filters[HYDRATE_SOURCES_MAX];
    struct hydrate_source sources[HYDRATE_SOURCES_MAX];
    struct hydrate_options options;
    struct volume *volume; /* owned */
    struct term term;
};

static void run_done(struct run *r)
{
    for (size_t i = 0; i < r->options.source_count; i++) {
        store_free(r->stores[i]);
        filter_done(&r->filters[i]);
    }
    volume_close(r->volume);
}

static int fill_filter(struct filter *f, const char *const *include, size_t include_count, const char *const *exclude,
                       size_t exclude_count, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < include_count && r == 0; i++)
        r = filter_add(f, false, str_of(include[i]), err);
    for (size_t i = 0; i < exclude_count && r == 0; i++)
        r = filter_add(f, true, str_of(exclude[i]), err);
    return r;
}

static int add_source(struct run *run, const struct store_options *o, const char *uri, const char *sub_path,
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

static int check_flags(struct err *err)
{
    struct err ignored;
    if (flags.concurrency > 512 || flags.workers > WORKERS_MAX)
        return err_set(err, ERR_INVALID, "--concurrency is 1 to 512, --workers 1 to 32");
    if (flags.priority.count > HYDRATE_PRIORITIES_MAX)
        return err_set(err, ERR_INVALID, "--priority was given more than %d times", HYDRATE_PRIORITIES_MAX);
    for (size_t i = 0; i < flags.priority.count; i++)
        if (glob_check(str_of(flags.priority.items[i]), &ignored) < 0)
            return err_set(err, ERR_INVALID, "--priority %s: %s", flags.priority.items[i], ignored.text);
    return 0;
}

static int parse_verify(const char *text, enum hydrate_verify *ret, struct err *err)
{
    static const char *const names[] = {"auto", "size", "none"};
    for (size_t i = 0; text && i < countof(names); i++)
        if (strcmp(text, names[i]) == 0) {
            *ret = (enum hydrate_verify)i;
            return 0;
        }
    return text ? err_set(err, ERR_INVALID, "--verify is auto, size or none, not '%s'", text) : 0;
}

static int parse_shard(const char *text, struct shard *ret, struct err *err)
{
    if (flags.dry_run)
        return err_set(err, ERR_INVALID, "--dry-run counts all objects: leave --shard out");
    int r = shard_parse(str_of(text), ret, err);
    return r < 0 ? err_wrap(err, "--shard") : 0;
}

static int from_flags(struct run *run, const char *uri, struct err *err)
{
    struct store_options o = store_defaults(uri);
    struct hydrate_options *h = &run->options;
    *h = (struct hydrate_options){.priorities = flags.priority.items,
                                  .priority_count = flags.priority.count,
                                  .concurrency_max = (unsigned)flags.concurrency,
                                  .bytes_per_second = flags.bandwidth,
                                  .memory_bytes = flags.memory,
                                  .workers = (unsigned)flags.workers,
                                  .errors_max = flags.max_errors,
                                  .direct = flags.no_direct ? HYDRATE_DIRECT_OFF : HYDRATE_DIRECT_AUTO,
                                  .skip_missing = flags.skip_missing,
                                  .size_check = true,
                                  .fresh = !flags.resume,
                                  .overwrite = flags.overwrite,
                                  .barrier_ns = flags.barrier_ns,
                                  .stall_ns = globals.stall_ns,
                                  .durable = flags.fsync,
                                  .no_uring = flags.no_uring};
    int r = check_flags(err);
    if (r == 0 && flags.shard)
        r = parse_shard(flags.shard, &h->shard, err);
    if (r == 0)
        r = parse_verify(flags.verify, &h->verify, err);
    if (r == 0)
        r = fill_filter(&run->filters[0], flags.include.items, flags.include.count, flags.exclude.items,
                        flags.exclude.count, err);
    return r == 0 ? add_source(run, &o, uri, NULL, err) : r;
}

/* ---- a volume ---------------------------------------------------------------------------------------------------- */

static int volume_sources(struct run *run, const struct spec *spec, struct err *err)
{
    const struct spec_source *s = &spec->source;
    for (size_t i = 0; i < spec_source_count(spec); i++) {
        struct spec_part part = spec_source_at(spec, i);
        struct store_options o = store_defaults(part.uri);
        o.endpoint = s->endpoint ? s->endpoint : o.endpoint;
        o.region = s->region ? s->region : o.region;
        o.ca = s->ca_bundle ? str_of(s->ca_bundle) : STR_NULL;
        o.path_style |= s->path_style;
        o.billing = s->requester_pays;
        if (s->identity == IDENTITY_ANONYMOUS)
            o.auth = STORE_AUTH_ANONYMOUS;
        o.retry = store_retry_of(s);
        int r = fill_filter(&run->filters[i], (const char *const *)part.include.items, part.include.count,
                            (const char *const *)part.exclude.items, part.exclude.count, err);
        if (r == 0)
            r = add_source(run, &o, part.uri, part.sub_path ? part.sub_path : s->layout_sub_path, err);
        run->sources[i].keeps_prefix = !s->layout_strip_prefix;
        if (r < 0)
            return r;
    }
    return 0;
}

static_assert((int)SPEC_PRIORITIES_MAX <= (int)HYDRATE_PRIORITIES_MAX,
              "a volume's priorities are all given to the engine");
static_assert((int)SPEC_SHARDS_MAX <= (int)SHARDS_MAX, "as many shards as the engine deals to");

static int from_volume(struct run *run, struct target **ret, struct err *err)
{
    int r = volume_open(flags.volume, &run->volume, err);
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
        .skip_missing = spec->source.on_missing == ON_MISSING_SKIP,
        .size_check = spec->source.size_check,
        .fresh = !flags.resume,
        .barrier_ns = flags.barrier_ns,
        .stall_ns = globals.stall_ns,
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
    (*ret)->file_mode = (mode_t)spec->source.layout_file_mode;
    (*ret)->dir_mode = (mode_t)spec->source.layout_dir_mode;
    (*ret)->uid = (uint32_t)spec->source.layout_uid;
    (*ret)->gid = (uint32_t)spec->source.layout_gid;
    umask(0); /* the modes are the volume's, not the caller's */
    return 0;
}

/* ---- while it runs ----------------------------------------------------------------------------------------------- */

static void print_faults(struct run *run, struct hydrate *h)
{
    static struct hydrate_fault f;
    while (hydrate_next_fault(h, &f))
        term_fault(&run->term, str_of(f.object), f.id, f.code, f.message);
}

static void show(struct run *run, struct hydrate *h, struct hydrate_status *s)
{
    char slowest[256], retry[ERR_TEXT_MAX + 64];
    bool retries = false;
    hydrate_status(h, s);
    hydrate_slowest(h, slowest, sizeof slowest);
    for (size_t i = 0; i < run->options.source_count && !retries; i++)
        retries = store_retrying(run->stores[i], retry, sizeof retry);
    struct term_progress p = {.what = hydrate_phase_name(s->phase),
                              .bytes = s->bytes_done,
                              .bytes_total = s->bytes_total,
                              .objects = s->objects_done,
                              .objects_total = s->objects_total,
                              .errors = s->objects_failed,
                              .rate = (double)s->bytes_per_second,
                              .total_is_final = s->phase != HYDRATE_LISTING,
                              .slowest = str_of(slowest),
                              .retry = retries ? retry : NULL};
    print_faults(run, h);
    if (!hydrate_has_ended(h))
        term_progress(&run->term, &p);
}

static void watch(struct run *run, struct hydrate *h, int signals)
{
    static struct hydrate_status s;
    struct follow follow = {.folder = flags.volume};
    while (!hydrate_has_ended(h)) {
        struct pollfd p[] = {{.fd = hydrate_fd(h), .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        if (poll(p, countof(p), 200) > 0 && p[1].revents) {
            struct signalfd_siginfo info;
            if (read(signals, &info, sizeof info) == sizeof info)
                hydrate_cancel(h);
        }
        follow_retry(&follow, run->stores, run->options.source_count);
        show(run, h, &s);
    }
    print_faults(run, h);
    term_clear(&run->term);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void print_skipped(const struct hydrate_listing *l)
{
    auto_sbuf b;
    sbuf_init(&b, TERM_LINE_MAX);
    term_add_visible(&b, str_of(l->last_skipped), 200);
    printf(", left out %" PRIu64 " that are neither files nor links to one within (the last: '%s')", l->names_skipped,
           b.ptr);
}

static void print_summary(const struct run *run, const struct hydrate_status *s, uint64_t started_ns)
{
    char bytes[BYTES_TEXT_MAX], rate[BYTES_TEXT_MAX], took[TIME_TEXT_MAX];
    uint64_t ns = clock_now_ns() - started_ns;
    uint64_t verified = s->objects_done - s->objects_size_only;
    if (run->term.form == TERM_JSON) {
        auto_sbuf b;
        sbuf_init(&b, TERM_LINE_MAX);
        term_json_begin(&b, "summary");
        term_json_str(&b, "phase", str_of(hydrate_phase_name(s->phase)));
        term_json_u64(&b, "found", s->objects_total);
        term_json_u64(&b, "hydrated", s->objects_done);
        term_json_u64(&b, "verified", verified);
        term_json_u64(&b, "size_only", s->objects_size_only);
        term_json_u64(&b, "failed", s->objects_failed);
        term_json_u64(&b, "missing", s->objects_missing);
        term_json_u64(&b, "kept", s->objects_kept);
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
        printf(" (%" PRIu64 " more by size only: no checksum was to be had)", s->objects_size_only);
    if (s->objects_failed)
        printf(", failed %" PRIu64, s->objects_failed);
    if (s->objects_kept)
        printf(", kept %" PRIu64 " files of other origin", s->objects_kept);
    if (s->objects_missing)
        printf(", left out %" PRIu64 " that are gone", s->objects_missing);
    if (s->listing.names_skipped)
        print_skipped(&s->listing);
    printf("; %s in %s, %s/s, %" PRIu64 " requests", bytes_text(s->bytes_done, bytes), duration_text(ns, took),
           bytes_text((uint64_t)((double)s->bytes_done * 1e9 / (double)(ns ? ns : 1)), rate), s->requests);
    if (s->hedged)
        printf(" (%" PRIu64 " of them hedged)", s->hedged);
    printf("\n");
}

static int exit_of(struct hydrate *h, const struct hydrate_status *s)
{
    if (s->phase == HYDRATE_STOPPED) {
        if (!globals.quiet && !globals.json)
            fprintf(stderr, "cistern: interrupted; the same command continues\n");
        return EXIT_INTERRUPTED;
    }
    if (s->phase == HYDRATE_DONE)
        return flags.fail_if_empty && s->objects_total == 0 ? EXIT_EMPTY : EXIT_DONE;
    if (s->error.id != 1513)
        return (int)exit_code_of(s->error.code);
    enum err_code common = hydrate_common_fault(h);
    int code = common ? (int)exit_code_of(common) : EXIT_SOME_FAILED;
    bool tells_more = code == EXIT_DENIED || code == EXIT_TRANSIENT || code == EXIT_MISMATCH;
    return tells_more ? code : EXIT_SOME_FAILED;
}

static void tell_unnamed(struct run *run, struct hydrate *h)
{
    char line[128];
    uint64_t unnamed = hydrate_faults_unnamed(h);
    snprintf(line, sizeof line, "%" PRIu64 " more objects failed, too many at once to be named", unnamed);
    if (unnamed)
        term_fault(&run->term, STR_NULL, 1513, ERR_IO, line);
}

static int end(struct run *run, struct hydrate *h, uint64_t started_ns)
{
    static struct hydrate_status s;
    hydrate_status(h, &s);
    tell_unnamed(run, h);
    if (s.has_error)
        term_fault(&run->term, STR_NULL, s.error.id, s.error.code, s.error.message);
    print_summary(run, &s, started_ns);
    return exit_of(h, &s);
}

static int block_signals(struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    /* Before any thread is there: all inherit it, and only main reads them. */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? err_sys(err, errno, "cannot listen to signals") : fd;
}

static int run_it(struct run *run, struct target *own_target, struct err *err)
{
    uint64_t started_ns = clock_now_ns();
    auto_target target = own_target;
    auto_fd signals = block_signals(err);
    if (signals < 0)
        return (int)exit_with(err, globals.json);
    fd_limit_raise();
    auto_hydrate h = NULL;
    if (hydrate_start(&run->options, take(&target), &h, err) < 0) {
        err_wrap(err, "hydrate");
        return (int)exit_with(err, globals.json);
    }
    watch(run, h, signals);
    return end(run, h, started_ns);
}

int verb_hydrate(int argc, char **argv)
{
    struct err err;
    flags.resume = true;
    int code = verb_begin(table, usage, &argc, argv);
    if (code >= 0)
        return code;
    if (flags.volume ? argc != 1 : argc != 3) {
        fprintf(stderr, "cistern: hydrate needs a URI and a folder; see cistern hydrate --help\n");
        return EXIT_USAGE;
    }
    auto_with(run_done) struct run run = {0};
    term_init(&run.term, globals.json, globals.quiet, globals.no_progress);
    struct target *target = NULL;
    int r = flags.volume ? from_volume(&run, &target, &err) : from_flags(&run, argv[1], &err);
    if (r == 0 && flags.dry_run)
        return ls_sum(run.stores[0], run.sources[0].uri, &run.filters[0], flags.fail_if_empty);
    if (r == 0 && !flags.volume)
        r = target_open_dir(argv[2], &target, &err);
    if (r < 0) {
        err_wrap(&err, "hydrate");
        return (int)exit_with(&err, globals.json);
    }
    return run_it(&run, target, &err);
}
