/* SPDX-License-Identifier: Apache-2.0 */
/* cistern export - Uploads a directory to a bucket: DIR URI, or a volume by its export policy. */
#include "catalog/index.h"
#include "cistern.h"
#include "cli/exit.h"
#include "cli/term.h"
#include "estimate.h"
#include "export/owner.h"
#include "export/run.h"
#include "export/walk.h"
#include "export_state.h"
#include "hydrate/status.h"
#include "io/probe.h"
#include "pool/record.h"
#include "pool/volume.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/thread.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

enum { POOL_THREADS = 8 };
static const uint64_t tick_ns = 100 * NS_PER_MS, progress_every_ns = 500 * NS_PER_MS;

static struct {
    struct opt_list include, exclude;
    const char *since, *conflict, *marker, *storage_class, *delete_after;
    int64_t since_ns; /* of `since`, as wall clock */
    const char *volume, *purpose, *state;
    uint64_t settle_ns, deadline_ns, concurrency, bandwidth;
    struct estimate_terms terms;
    bool dry_run, allow_empty;
} flags = {.terms = ESTIMATE_TERMS(64)};

static const struct opt table[] = {
    FILTER_OPTS(flags.include, flags.exclude),
    {"since", 0, OPT_TEXT, &flags.since, "TIME",
     "take only files that changed after TIME: 2026-11-21T09:00:00Z, or an age such as 2h"},
    {"settle", 0, OPT_DURATION, &flags.settle_ns, "TIME", "take a file when it was unchanged for this long (0s)"},
    {"conflict", 0, OPT_TEXT, &flags.conflict, "WHAT",
     "if another writer's object has the key: fail, overwrite or version (fail)"},
    {"marker", 0, OPT_TEXT, &flags.marker, "NAME", "upload this file last in each checkpoint directory (_SUCCESS)",
     .least = 1},
    {"storage-class", 0, OPT_TEXT, &flags.storage_class, "NAME", "store objects in this storage class (the bucket's)",
     .least = 1},
    {"deadline", 0, OPT_DURATION, &flags.deadline_ns, "TIME",
     "end the run after this time; files that are not confirmed by then fail (24h)", .least = 1},
    {"concurrency", 0, OPT_U64, &flags.concurrency, "N",
     "run at most N requests at once, 1 to 512 (the volume's, or 64)", .least = 1, .most = 512},
    {"bandwidth", 0, OPT_BYTES, &flags.bandwidth, "RATE",
     "send at most RATE bytes a second, such as 100M (the volume's, or no limit)", .least = 1},
    {"dry-run", 0, OPT_FLAG, &flags.dry_run, NULL,
     "list the files to upload and estimate requests, time and price; upload nothing"},
    ESTIMATE_OPTS(flags.terms),
    {"allow-empty", 0, OPT_FLAG, &flags.allow_empty, NULL, "accept a DIR without a file to send (default: exit 9)"},
    {"delete-after", 0, OPT_TEXT, &flags.delete_after, "WHEN", "delete local files: only never is supported (never)"},
    {"state", 0, OPT_TEXT, &flags.state, "DIR", "record uploads in this directory (~/.local/state/cistern/export)",
     .least = 1},
    {"volume", 0, OPT_TEXT, &flags.volume, "DIR", "export a volume (<pool>/volumes/<id>) by its export policy"},
    {"for", 0, OPT_TEXT, &flags.purpose, "WHY",
     "record this reason with --volume: release, unpublish or manual (manual)"},
    COPY_HABITS(flags.concurrency),
    {0},
};

static const char usage[] = "Usage: cistern export [flags] DIR URI\n"
                            "       cistern export --volume <pool>/volumes/<id> [--for WHY]\n\n"
                            "Uploads the files below DIR to a bucket prefix (s3://, gs://, file://). Files that are "
                            "open for writing are waited\n"
                            "for. A file counts as exported when the bucket has confirmed its size and checksum. Run "
                            "the same command again to\n"
                            "continue an interrupted export: its records are in the directory of --state.\n\n"
                            "  cistern export ./checkpoints s3://bucket/run-7/\n"
                            "  cistern export ./logs gs://bucket/logs/ --include '*.jsonl' --settle 30s\n\nFlags:\n";

struct export_cmd {
    struct spec *spec; /* owned; of the volume, or made from flags */
    struct volume *volume;
    struct export_state state;  /* owned */
    int export_dir, lock, data; /* owned */
    enum verdict_purpose purpose;
    uint64_t writes;        /* of the sealed volume, when the run started */
    int64_t unpublished_ns; /* of the volume's record at that time */
    char *destination;      /* owned */
    char owner[OWNER_MAX];
    struct store *store;
    struct thread_pool *threads;
    struct worker workers[WORKERS_MAX];
    size_t worker_count;
    struct index *catalog; /* NULL: no file is known to come from the bucket */
    int64_t hydrated_ns;

    pthread_mutex_t lock_term; /* results come on a loop, progress on main */
    struct term term;
    uint64_t sent, sent_bytes; /* by this run */
    struct estimate estimate;  /* of a dry run */

    bool is_stopped;       /* main's */
    bool has_records;      /* that a later run needs */
    uint64_t entries_read; /* of the directory */
    uint64_t ask_at_ns;
};

/* ---- output ------------------------------------------------------------------------------------------------------ */

static const char *const words[] = {
    [RUN_SENT] = "exported",   [RUN_THERE] = "there",   [RUN_SKIPPED] = "skipped",
    [RUN_WAITING] = "waiting", [RUN_FAILED] = "failed", [RUN_PLANNED] = "would export",
};

static void print_result_json(const struct run_result *r)
{
    auto_sbuf b = SBUF(TERM_LINE_MAX);
    term_json_begin(&b, "object");
    term_json_str(&b, "object", r->path);
    term_json_str(&b, "result", str_of(words[r->event]));
    term_json_u64(&b, "bytes", r->size_bytes);
    if (r->key.len)
        term_json_str(&b, "key", r->key);
    if (r->note)
        term_json_str(&b, "note", str_of(r->note));
    if (r->err)
        term_json_error(&b, r->err);
    term_json_end(&b, stdout);
}

static void print_result_text(struct export_cmd *j, const struct run_result *r)
{
    char size[BYTES_TEXT_MAX];
    auto_sbuf path = SBUF(TERM_LINE_MAX);
    term_add_visible(&path, r->path, TERM_LINE_MAX / 2);
    term_clear(&j->term);
    if (r->event == RUN_SKIPPED || r->event == RUN_WAITING)
        printf("%-9s %s%s%s\n", words[r->event], path.ptr, r->note ? ": " : "", r->note ? r->note : "");
    else
        printf("%-9s %s  %s\n", words[r->event], path.ptr, bytes_text(r->size_bytes, size));
}

static void on_result(void *ctx, const struct run_result *r)
{
    struct export_cmd *j = ctx;
    auto_lock(&j->lock_term);
    j->sent += r->event == RUN_SENT;
    j->sent_bytes += r->event == RUN_SENT ? r->size_bytes : 0;
    if (r->event == RUN_PLANNED)
        estimate_add_upload(&j->estimate, j->store, r->size_bytes);
    if (j->term.form == TERM_JSON)
        print_result_json(r);
    else if (r->event == RUN_FAILED)
        term_object_error(&j->term, r->path, r->err);
    else if (j->term.form != TERM_QUIET)
        print_result_text(j, r);
}

static void show_progress(struct export_cmd *j, const struct verdict *v, uint64_t already_bytes, uint64_t began_ns)
{
    uint64_t spent = clock_now_ns() - began_ns;
    char retry[RETRY_TEXT_MAX];
    struct term_progress p = {.what = "exporting",
                              .bytes = v->done_bytes,
                              .bytes_total = v->done_bytes + v->pending_bytes + v->failed_bytes,
                              .objects = v->done_files,
                              .objects_total = v->done_files + v->pending_files + v->failed_files,
                              .errors = v->failed_files,
                              .retries = store_retries(j->store),
                              .rate = (double)(v->done_bytes - already_bytes) * 1e9 / (double)(spent + 1),
                              .total_is_final = true,
                              .retry = retry_text(&j->store, 1, retry)};
    auto_lock(&j->lock_term);
    term_progress(&j->term, &p);
}

/* "12 by CRC64NVME, 1 by reading back": the files of this run. */
static void add_proofs(const struct verdict *v, struct sbuf *b)
{
    for (int i = PROOF_NONE + 1; i < PROOFS; i++)
        if (v->proven_files[i] > 0)
            sbuf_addf(b, "%s%lu by %s", b->len ? ", " : "", v->proven_files[i],
                      verdict_proof_name((enum verdict_proof)i));
}

static void print_summary_json(const struct export_cmd *j, const struct verdict *v, const char *state,
                               uint64_t spent_ns)
{
    auto_sbuf b = SBUF(TERM_LINE_MAX);
    term_json_begin(&b, "summary");
    term_json_str(&b, "state", str_of(flags.dry_run ? "planned" : state));
    term_json_str(&b, "uri", str_of(v->uri));
    term_json_u64(&b, "objects", v->done_files);
    term_json_u64(&b, "bytes", v->done_bytes);
    term_json_u64(&b, "failed", v->failed_files);
    term_json_u64(&b, "pending", v->pending_files);
    term_json_u64(&b, "skipped", v->skipped_files);
    term_json_u64(&b, "size_only", v->size_only_files);
    term_json_u64(&b, "sent", j->sent);
    term_json_u64(&b, "sent_bytes", j->sent_bytes);
    term_json_u64(&b, "there", v->done_files - j->sent);
    term_json_u64(&b, "looked_only", v->head_only_files);
    term_json_u64(&b, "read_back", v->proven_files[PROOF_READ_BACK]);
    auto_sbuf ways = SBUF(512);
    add_proofs(v, &ways);
    term_json_str(&b, "confirmed_by", sbuf_str(&ways));
    term_json_real(&b, "seconds", (double)spent_ns / 1e9);
    if (flags.dry_run)
        estimate_add_json(&b, &j->estimate, &flags.terms, j->store);
    term_json_end(&b, stdout);
}

static void print_plan(const struct export_cmd *j, const struct verdict *v)
{
    char bytes[BYTES_TEXT_MAX];
    printf("would send %lu files, %s; already there %lu, skipped %lu\n", v->pending_files,
           bytes_text(j->estimate.bytes, bytes), v->done_files, v->skipped_files);
    estimate_print(&j->estimate, &flags.terms, j->store);
}

static void print_summary(struct export_cmd *j, const struct verdict *v, uint64_t spent_ns)
{
    char bytes[BYTES_TEXT_MAX], total[BYTES_TEXT_MAX], rate[BYTES_TEXT_MAX], time[TIME_TEXT_MAX];
    const char *state = j->is_stopped && v->state == VERDICT_RUNNING ? "stopped" : verdict_state_name(v->state);
    term_clear(&j->term);
    if (j->term.form == TERM_JSON) {
        print_summary_json(j, v, state, spent_ns);
        return;
    }
    if (j->term.form == TERM_QUIET)
        return;
    if (flags.dry_run) {
        print_plan(j, v);
        return;
    }
    printf("%s: sent %lu, already there %lu, failed %lu, not tried %lu, skipped %lu; %s in %s, %s/s\n", state, j->sent,
           v->done_files - j->sent, v->failed_files, v->pending_files, v->skipped_files,
           bytes_text(j->sent_bytes, bytes), duration_text(spent_ns, time),
           bytes_text((uint64_t)((double)j->sent_bytes * 1e9 / (double)(spent_ns + 1)), rate));
    if (v->done_files > 0)
        printf("%lu files, %s in %s, confirmed by size and checksum; %lu have no checksum in the store\n",
               v->done_files, bytes_text(v->done_bytes, total), v->uri, v->size_only_files);
    auto_sbuf ways = SBUF(512);
    add_proofs(v, &ways);
    if (ways.len)
        printf("confirmed: %s\n", ways.ptr);
    if (v->head_only_files > 0)
        printf(
            "checked by HEAD only: %lu %s; the store ignores If-None-Match, so an object that another writer created "
            "after the HEAD was overwritten\n",
            v->head_only_files, v->head_only_files == 1 ? "file" : "files");
}

/* ---- preparation ------------------------------------------------------------------------------------------------- */

static int set_list(struct spec *s, const char *key, const struct opt_list *list, struct err *err)
{
    auto_sbuf b = SBUF(1 << 20);
    for (size_t i = 0; i < list->count; i++) {
        sbuf_adds(&b, i ? "," : "");
        sbuf_adds(&b, list->items[i]);
    }
    return list->count ? spec_set(s, str_of(key), sbuf_str(&b), err) : 0;
}

/* The flags become a policy, so that one table checks the values of both. */
static int policy_of_flags(struct export_cmd *j, const char *uri, struct err *err)
{
    static const char *const conflicts[] = {"fail", "overwrite", "version"};
    const char *const texts[][2] = {{"export.uri", uri},
                                    {"export.conflict", flags.conflict},
                                    {"export.marker", flags.marker},
                                    {"export.storageClass", flags.storage_class}};
    unsigned ignored;
    struct spec *s = j->spec = spec_new();
    int r = parse_choice("--conflict", flags.conflict, conflicts, countof(conflicts), &ignored, err);
    for (size_t i = 0; i < countof(texts) && r == 0; i++)
        if (texts[i][1])
            r = spec_set(s, str_of(texts[i][0]), str_of(texts[i][1]), err);
    if (r == 0)
        r = set_list(s, "export.include", &flags.include, err);
    if (r == 0)
        r = set_list(s, "export.exclude", &flags.exclude, err);
    s->export.settle_ns = flags.settle_ns;
    if (flags.deadline_ns)
        s->export.deadline_ns = flags.deadline_ns;
    if (r == 0)
        r = spec_check_owed(s, err);
    return r;
}

static int open_directory(struct export_cmd *j, const char *dir, const char *uri, struct err *err)
{
    int r = uri_check(str_of(uri), err); /* the policy's advice would be for a BucketSource */
    if (r == 0)
        r = policy_of_flags(j, uri, err);
    if (r < 0)
        return r;
    r = dir_open(AT_FDCWD, dir, &j->data, err);
    if (r == -ERR_NOT_FOUND && path_check_links(dir, err) < 0)
        r = -ERR_INVALID;
    return r < 0 ? err_wrap(err, "export sends a directory (select files of it with --include)") : 0;
}

/* A file is unchanged since hydration if the catalog has it with this size and mtime. Its ctime, which no program can
 * set, must be before the end of hydration. Without a catalog every file counts as new and is uploaded again. */
static void load_hydrated(struct export_cmd *j)
{
    auto_mem struct hydrate_status *s = xcalloc(1, sizeof *s);
    if (hydrate_status_read(j->volume->dir, s, ERR_IGNORED) == 0 && s->phase == HYDRATE_DONE &&
        index_open(j->volume->dir, NULL, false, &j->catalog, ERR_IGNORED) == 0)
        j->hydrated_ns = s->finished_ns;
}

static bool is_hydrated(void *ctx, const struct walk_file *f)
{
    const struct export_cmd *j = ctx;
    struct index_entry e;
    uint64_t id;
    return f->ctime_ns <= j->hydrated_ns && index_find(j->catalog, f->path, &id, ERR_IGNORED) == 0 &&
           index_get(j->catalog, id, &e, ERR_IGNORED) == 0 && e.size_bytes == f->size_bytes &&
           (e.mtime_ns == 0 || e.mtime_ns == f->mtime_ns);
}

static int open_volume(struct export_cmd *j, struct err *err)
{
    int r = flags.purpose ? verdict_purpose_parse(str_of(flags.purpose), &j->purpose, err) : 0;
    if (r == 0)
        r = open_named_volume(flags.volume, &j->volume, err);
    if (r == 0)
        r = probe_serve("export", flags.volume, err);
    if (r < 0)
        return r;
    j->spec = j->volume->spec;
    if (!j->spec->export.uri.text)
        return err_set(err, ERR_INVALID, "'%s' has no export policy", flags.volume);
    r = volume_data(j->volume, &j->data, err);
    if (r == 0)
        r = volume_check_uncovered(j->volume, err);
    if (r == 0)
        r = dir_open(j->volume->dir, ".", &j->state.fd, err);
    if (r < 0)
        return r;
    verdict_reserve(j->state.fd); /* an earlier run may have spent it */
    load_hydrated(j);
    return 0;
}

static int open_store(struct export_cmd *j, struct err *err)
{
    const struct spec_export *e = &j->spec->export;
    const struct spec_source *s = &j->spec->source;
    struct spec_server server = spec_export_server(j->spec);
    struct store_options o = store_defaults(e->uri.text);
    o.endpoint = server.endpoint ? server.endpoint : o.endpoint;
    o.region = server.region ? server.region : o.region;
    o.ca = str_of(server.ca_bundle);
    o.path_style |= s->path_style;
    if (flags.volume)
        o.retry = store_retry_of(s);
    auto_sbuf b = SBUF(16384);
    sbuf_addf(&b, "%s\n%s", e->uri.text, o.endpoint ? o.endpoint : "");
    int r = sbuf_take(&b, &j->destination, err);
    return r < 0 ? r : store_open(&o, &j->store, err);
}

/* The next run would export what this one wrote. */
static int check_apart(const struct export_cmd *j, const char *dir, struct err *err)
{
    if (store_endpoint(j->store) || !path_is_within(store_bucket(j->store).ptr, dir))
        return 0;
    return err_set(err, ERR_INVALID, "'%s' is inside '%s', which the export would send: choose a URI outside of it",
                   j->spec->export.uri.text, dir);
}

static int start_workers(struct export_cmd *j, struct err *err)
{
    struct web_options web = {.stall_timeout_ns = request_stall_ns(WEB_STALL_NS)};
    size_t want = worker_count(0);
    store_trust(j->store, &web);
    int r = thread_pool_new(POOL_THREADS, &j->threads, err);
    for (; r == 0 && j->worker_count < want; j->worker_count++) {
        r = worker_init(&j->workers[j->worker_count], (unsigned)j->worker_count, j->threads, &web, true, err);
        if (r < 0)
            break;
    }
    for (size_t i = 0; i < j->worker_count && r == 0; i++)
        r = loop_start(j->workers[i].loop, err);
    return r;
}

static void close_job(struct export_cmd *j)
{
    for (size_t i = 0; i < j->worker_count; i++)
        worker_done(&j->workers[i]);
    thread_pool_free(j->threads);
    store_free(j->store);
    index_free(j->catalog);
    free(j->destination);
    export_state_done(&j->state, j->has_records || (flags.state && !flags.dry_run));
    int fds[] = {j->data, j->export_dir, j->lock};
    for (size_t i = 0; i < countof(fds); i++)
        fd_close(&fds[i]);
    if (!j->volume)
        spec_free(j->spec);
    volume_close(j->volume);
    pthread_mutex_destroy(&j->lock_term);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static bool is_stopped(struct export_cmd *j)
{
    sigset_t set = ending_signals();
    probe_beat();
    j->is_stopped |= sigtimedwait(&set, NULL, &(struct timespec){0}) > 0;
    return j->is_stopped;
}

/* Called for each entry of the directory, so the signals are polled at intervals. */
static bool reading_is_stopped(void *ctx)
{
    struct export_cmd *j = ctx;
    uint64_t now_ns = clock_now_ns();
    j->entries_read++;
    if (now_ns < j->ask_at_ns)
        return j->is_stopped;
    j->ask_at_ns = now_ns + tick_ns / 2;
    auto_lock(&j->lock_term);
    term_progress(&j->term, &(struct term_progress){.what = "reading", .objects_total = j->entries_read});
    return is_stopped(j);
}

static void watch(struct export_cmd *j, struct export_run *r)
{
    struct verdict now;
    uint64_t began = clock_now_ns(), written = 0, already = UINT64_MAX;
    struct retry_reload reload = {.volume_dir = flags.volume};
    while (!run_wait(r, tick_ns, &now)) {
        already = already == UINT64_MAX ? now.done_bytes : already;
        show_progress(j, &now, already, began);
        if (clock_now_ns() - written >= progress_every_ns) {
            (void)!verdict_write_progress(j->export_dir, &now, ERR_IGNORED); /* the next one replaces it */
            written = clock_now_ns();
        }
        retry_reload(&reload, &j->store, 1);
        if (is_stopped(j))
            run_stop(r);
    }
}

static enum exit_code exit_of(const struct verdict *v)
{
    if (v->state != VERDICT_FAILED)
        return EXIT_DONE;
    return v->done_files == 0 && v->failed_count > 0 ? exit_code_of(v->failed[0].err.code) : EXIT_SOME_FAILED;
}

/* A typing error, or a file system that is not mounted, as for a source of hydrate. With --since, an export may often
 * have no file, and so may a volume. */
static enum exit_code check_found(const struct export_cmd *j, const struct verdict *v, const char *dir)
{
    struct err err;
    bool may_be_empty = j->volume || flags.since || flags.allow_empty;
    if (may_be_empty || v->done_files + v->pending_files + v->failed_files > 0)
        return exit_of(v);
    if (flags.include.count > 0) {
        err_set(&err, ERR_NOT_FOUND, "--include '%s'%s matches no file", flags.include.items[0],
                flags.include.count > 1 ? " and the others" : "");
        err_advise(&err, CIS_NO_FILE_MATCHES);
    } else {
        err_set(&err, ERR_NOT_FOUND, "'%s': nothing was sent: %s", dir,
                flags.exclude.count > 0 ? "--exclude leaves out all files" : "it has no regular file");
        err_advise(&err, CIS_NOTHING_TO_EXPORT);
    }
    exit_with(&err, globals.json);
    return EXIT_EMPTY;
}

static enum exit_code run_job(struct export_cmd *j, const char *dir)
{
    struct err err;
    struct export_run *run;
    struct verdict verdict;
    uint64_t began = clock_now_ns();
    const struct spec_params *own = &j->spec->params;
    struct run_options o = {.policy = &j->spec->export,
                            .store = j->store,
                            .workers = j->workers,
                            .worker_count = j->worker_count,
                            .data = j->data,
                            .export_dir = j->export_dir,
                            .owner = j->owner,
                            .destination = j->destination,
                            .purpose = j->purpose,
                            .since_ns = flags.since_ns,
                            .writes = j->writes,
                            .unpublished_ns = j->unpublished_ns,
                            .must_lease = j->volume != NULL,
                            .dry_run = flags.dry_run,
                            .concurrency = (unsigned)(flags.concurrency ? flags.concurrency : own->concurrency),
                            .bytes_per_second = flags.bandwidth ? flags.bandwidth : own->bandwidth,
                            .ctx = j,
                            .is_hydrated = j->catalog ? is_hydrated : NULL,
                            .on_result = on_result,
                            .is_stopped = reading_is_stopped};
    flags.terms.bytes_per_second = o.bytes_per_second;
    flags.terms.concurrency = o.concurrency;
    if (run_open(&o, &run, &err) < 0)
        return exit_with(&err, globals.json);
    watch(j, run);
    j->has_records = run_has_records(run);
    int r = run_close(run, &verdict, &err);
    if (r == 0 || r == -ERR_CANCELLED) {
        print_summary(j, &verdict, clock_now_ns() - began);
        enum exit_code code = r == 0 ? check_found(j, &verdict, dir) : EXIT_INTERRUPTED;
        verdict_done(&verdict);
        if (r == 0)
            return code;
    }
    exit_with(&err, globals.json);
    return r == -ERR_CANCELLED ? EXIT_INTERRUPTED : exit_code_of(err.code);
}

/* Of `export DIR URI`. */
static int check_ends(char **argv, struct err *err)
{
    if (flags.purpose)
        return err_set(err, ERR_INVALID, "--for is for --volume DIR: remove it");
    return check_export_ends(argv[1], argv[2], err);
}

static int check_usage(int argc, char **argv, struct err *err)
{
    static const char *const of_volume[] = {"volume",  "for",        "concurrency", "bandwidth",
                                            "dry-run", "price-read", "price-write", NULL};
    if (argc > 3)
        return err_set(err, ERR_INVALID, "unexpected argument '%s'; see `cistern export --help`", argv[3]);
    if (flags.volume ? argc != 1 : argc != 3)
        return err_set(err, ERR_INVALID, "export needs DIR and URI, or --volume DIR; see `cistern export --help`");
    if (flags.delete_after && strcmp(flags.delete_after, "never") != 0)
        return err_set(err, ERR_INVALID, "--delete-after: only never is supported");
    int r = flags.volume ? check_volume_flags(table, of_volume, err) : parse_since(flags.since, &flags.since_ns, err);
    if (r == 0)
        r = estimate_check(&flags.terms, flags.dry_run, err);
    return r < 0 || flags.volume ? r : check_ends(argv, err);
}

/* Read with the export's lock held and before the walk: a later publish changes the number. */
static int read_record(struct export_cmd *j, struct err *err)
{
    auto_record record = {0};
    int r = record_read(j->volume->dir, &record, err);
    if (r < 0 && r != -ERR_CORRUPT) /* with a damaged record, this run cannot certify a release */
        return r;
    if (j->purpose == VERDICT_FOR_RELEASE)
        j->writes = release_verdict_writes(record.release, record.writes);
    j->unpublished_ns = record.unpublished_ns ? record.unpublished_ns : record_changed_ns(j->volume->dir);
    return 0;
}

static int prepare(struct export_cmd *j, char **argv, struct err *err)
{
    int r = flags.volume ? open_volume(j, err) : open_directory(j, argv[1], argv[2], err);
    if (r == 0)
        r = open_store(j, err);
    if (r == 0 && !flags.volume)
        r = check_apart(j, argv[1], err);
    if (r == 0 && !flags.volume)
        r = export_state_open(&j->state, flags.state, argv[1], err);
    if (r == 0)
        r = verdict_lock(j->state.fd, &j->export_dir, &j->lock, err);
    if (r == 0 && j->volume)
        r = read_record(j, err);
    if (r == 0 && j->volume)
        owner_of_volume(j->spec, j->owner);
    else if (r == 0)
        r = owner_of_state(j->export_dir, j->owner, err);
    return r < 0 ? r : start_workers(j, err);
}

int verb_export(int argc, char **argv)
{
    struct err err;
    int code = verb_begin(table, usage, &argc, argv);
    if (code >= 0)
        return code;
    if (check_usage(argc, argv, &err) < 0)
        return exit_with(&err, globals.json);
    /* Before the first thread: file leases send SIGIO, and main handles the stop signals. */
    sigset_t blocked = ending_signals();
    sigaddset(&blocked, SIGIO);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    struct export_cmd j = {.state.fd = -1, .export_dir = -1, .lock = -1, .data = -1};
    pthread_mutex_init(&j.lock_term, NULL);
    term_init(&j.term, globals.json, globals.quiet, globals.no_progress);
    code = prepare(&j, argv, &err) < 0 ? exit_with(&err, globals.json) : run_job(&j, argv[1]);
    close_job(&j);
    return code;
}
