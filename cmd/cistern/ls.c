/* SPDX-License-Identifier: Apache-2.0 */
/* cistern ls URI: lists keys and sizes below a prefix. */
#include "cistern.h"
#include "cli/exit.h"
#include "cli/term.h"
#include "estimate.h"
#include "ls_order.h"
#include "store/list.h"
#include "store/single.h"
#include "util/clock.h"
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>

static const char usage[] =
    "Usage: cistern ls URI [flags]\n\n"
    "Lists the objects below URI (s3://bucket/prefix/, gs://bucket/prefix/, file:///dir/), one "
    "level unless -r. With -r, a URI\n"
    "without a slash at its end names one object, as for hydrate. Without -r, it lists the "
    "names that begin with it. If no\nobject matches, the exit code is 9; an empty bucket has exit code 0.\n\n"
    "  cistern ls -l s3://bucket/dataset/\n"
    "  cistern ls -r --sum gs://bucket/\n\nFlags:\n";

static struct {
    bool is_long, recursive, sum;
    struct opt_list include, exclude;
    const char *manifest;
    uint64_t max;
} flags;

static const struct opt table[] = {
    {"long", 'l', OPT_FLAG, &flags.is_long, NULL, "add size, modification time and checksum"},
    {"recursive", 'r', OPT_FLAG, &flags.recursive, NULL, "list all levels"},
    FILTER_OPTS(flags.include, flags.exclude),
    {"sum", 0, OPT_FLAG, &flags.sum, NULL, "print only the number of objects and bytes"},
    {"manifest-out", 0, OPT_TEXT, &flags.manifest, "FILE", "also write the list to FILE, one JSON object per line",
     .least = 1},
    {"max", 0, OPT_U64, &flags.max, "N", "stop after N names (no limit)", .least = 1},
    {0},
};

/* home: the first worker's loop; main reads it after over_fd was written. */
struct ls {
    struct store *store; /* borrowed */
    struct worker workers[WORKERS_MAX];
    unsigned worker_count;
    struct mail start;
    struct filter filter;
    struct sbuf prefix;
    size_t dir_len; /* of the prefix up to its last slash: names are shown without it */
    struct sbuf token;
    struct list_rounds rounds;
    unsigned empty_pages;       /* in a row */
    FILE *manifest;             /* owned */
    struct store_single single; /* instead of a listing */
    struct store_listing *listing;
    pthread_mutex_t lock; /* guards the fields below while a listing runs */
    uint64_t names, objects, excluded;
    const struct estimate_terms *terms; /* borrowed; NULL: no estimate */
    struct estimate estimate;           /* for hydrating the listed objects; has the sum of their bytes */
    struct ls_order *order;             /* owned */
    int over_fd;                        /* owned: eventfd */
    bool failed;
    struct err err;
};

static void over(struct ls *l, const struct err *err)
{
    uint64_t one = 1;
    l->failed = err != NULL;
    if (err)
        l->err = *err;
    if (write(l->over_fd, &one, sizeof one) != sizeof one)
        abort();
}

static struct str shown_name(const struct ls *l, const struct store_object *o)
{
    return str_from(o->key, l->dir_len);
}

static void json_object(struct sbuf *b, const struct ls *l, const struct store_object *o, bool folder)
{
    char time[TIME_TEXT_MAX];
    term_json_begin(b, folder ? "folder" : "object");
    term_json_str(b, "object", shown_name(l, o));
    if (folder)
        return;
    term_json_u64(b, "bytes", o->size_bytes);
    term_json_str(b, "modified", str_of(time_text(o->mtime_ns, time)));
    if (o->generation)
        term_json_u64(b, "generation", o->generation);
    if (o->etag.len)
        term_json_str(b, "etag", o->etag);
    if (o->digest.kind != HASH_NONE) {
        auto_sbuf hex = SBUF(128);
        digest_add_hex(&o->digest, &hex);
        term_json_str(b, hash_name(o->digest.kind), sbuf_str(&hex));
    }
}

/* Escapes control characters, so that a name stays on one line. */
static void add_name(struct sbuf *b, struct str s)
{
    size_t plain = 0; /* bytes up to here are added */
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] < 0x20 || s.ptr[i] == 0x7f) {
            sbuf_add(b, str_sub(s, plain, i - plain));
            sbuf_addf(b, "\\x%02x", (unsigned char)s.ptr[i]);
            plain = i + 1;
        }
    sbuf_add(b, str_from(s, plain));
}

static void text_object(struct sbuf *b, const struct ls *l, const struct store_object *o, bool folder)
{
    char time[TIME_TEXT_MAX], size[BYTES_TEXT_MAX];
    if (flags.is_long && folder) {
        sbuf_addf(b, "%10s  %24s  %-28s ", "-", "", "");
    } else if (flags.is_long) {
        auto_sbuf sum = SBUF(128);
        sbuf_addf(&sum, "%s:", hash_name(o->digest.kind));
        digest_add_hex(&o->digest, &sum);
        sbuf_addf(b, "%10s  %24s  %-28s ", bytes_text(o->size_bytes, size), time_text(o->mtime_ns, time),
                  o->digest.kind == HASH_NONE ? "-" : sum.ptr);
    }
    add_name(b, shown_name(l, o));
}

static bool is_folder(const struct ls *l, const struct store_object *o)
{
    /* with a delimiter, common prefixes come as objects without an ETag */
    return !flags.recursive && o->etag.len == 0 && o->key.len > l->prefix.len && str_ends(o->key, STR("/"));
}

static bool is_wanted(const struct ls *l, const struct store_object *o)
{
    struct str name = shown_name(l, o);
    if (name.len == 0)
        return false; /* the marker of the directory itself */
    return filter_wants(&l->filter, str_ends(name, STR("/")) ? str_sub(name, 0, name.len - 1) : name);
}

static void print_object(struct ls *l, FILE *out, const struct store_object *o, bool folder)
{
    auto_sbuf b = SBUF(1 << 20);
    if (l->manifest && !folder) {
        json_object(&b, l, o, false);
        term_json_end(&b, l->manifest);
    }
    if (flags.sum)
        return;
    if (globals.json) {
        json_object(&b, l, o, folder);
        term_json_end(&b, out);
        return;
    }
    text_object(&b, l, o, folder);
    sbuf_addc(&b, '\n');
    fwrite(b.ptr, 1, b.len, out);
}

/* True: --max is reached. */
static bool take_object(struct ls *l, const struct store_object *o)
{
    if (!is_wanted(l, o)) {
        l->excluded += shown_name(l, o).len > 0;
        return false;
    }
    bool folder = is_folder(l, o);
    l->names++;
    l->objects += !folder;
    estimate_add_fetch(&l->estimate, l->store, folder ? 0 : o->size_bytes);
    print_object(l, stdout, o, folder);
    return flags.max && l->names >= flags.max;
}

/* ---- page by page, in order -------------------------------------------------------------------------------------- */

static void next_page(struct ls *l);

static bool are_below(const struct ls *l, const struct store_object *objects, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!str_starts(objects[i].key, sbuf_str(&l->prefix)))
            return false;
    return true;
}

static void garbled(struct ls *l, const char *how)
{
    struct err err;
    err_set(&err, ERR_CORRUPT, "listing %s://%.*s/%.*s: %s", store_scheme(l->store), STR_FMT(store_bucket(l->store)),
            STR_FMT(sbuf_str(&l->prefix)), how);
    err_advise(&err, CIS_REPLY_INVALID);
    over(l, &err);
}

static void on_list(void *ctx, const struct store_reply *r, const struct store_object *objects, size_t count,
                    struct str next_token)
{
    struct ls *l = ctx;
    bool enough = false;
    l->estimate.writes += r->requests;
    if (r->code < 0) {
        over(l, &r->err);
        return;
    }
    if (!list_goes_on(&l->empty_pages, count, sbuf_str(&l->token), next_token) ||
        list_comes_round(&l->rounds, objects, count)) {
        garbled(l, "the store returns the same page repeatedly");
        return;
    }
    if (!are_below(l, objects, count)) {
        garbled(l, "the store returns keys outside of the prefix");
        return;
    }
    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < count && !enough; i++)
        enough = take_object(l, &objects[i]);
    pthread_mutex_unlock(&l->lock);
    sbuf_set(&l->token, next_token);
    if (enough || next_token.len == 0)
        over(l, NULL);
    else
        next_page(l);
}

static void next_page(struct ls *l)
{
    struct store_page p = {.prefix = sbuf_str(&l->prefix),
                           .token = sbuf_str(&l->token),
                           .delimited = !flags.recursive,
                           .ctx = l,
                           .on_done = on_list};
    store_list_page(l->store, &l->workers[0], &p);
}

/* ---- all levels, by all workers ---------------------------------------------------------------------------------- */

/* On any worker's loop. */
static int on_page(void *ctx, const struct store_object *objects, size_t count, bool sorted_so_far)
{
    struct ls *l = ctx;
    struct err err;
    char *text = NULL;
    size_t len = 0;
    struct estimate estimate = {0};
    uint64_t found = 0, excluded = 0;
    FILE *out = open_memstream(&text, &len);
    for (size_t i = 0; i < count; i++)
        if (is_wanted(l, &objects[i])) {
            found++;
            estimate_add_fetch(&estimate, l->store, objects[i].size_bytes);
            print_object(l, out, &objects[i], false);
        } else {
            excluded += shown_name(l, &objects[i]).len > 0;
        }
    fclose(out);
    pthread_mutex_lock(&l->lock);
    l->excluded += excluded;
    l->objects += found;
    estimate_merge(&l->estimate, &estimate);
    int r = ls_order_add(l->order, objects[0].key, (struct str){text, len}, sorted_so_far, &err);
    if (r < 0 && !l->failed)
        l->err = err;
    l->failed |= r < 0;
    pthread_mutex_unlock(&l->lock);
    free(text);
    return r;
}

static void on_listed(void *ctx, const struct err *err, uint64_t requests)
{
    struct ls *l = ctx;
    struct err own;
    l->estimate.writes += requests;
    if (l->failed)
        own = l->err;
    else if (!err && ls_order_end(l->order, &own) < 0)
        l->failed = true;
    over(l, l->failed ? &own : err);
}

/* The URI names one object. */
static void found_single(void *ctx, const struct store_object *object, const struct err *err, unsigned requests)
{
    struct ls *l = ctx;
    l->estimate.writes += requests;
    if (object && !err)
        (void)take_object(l, object);
    over(l, err);
}

static void deliver_start(struct mail *m)
{
    struct ls *l = container_of(m, struct ls, start);
    struct worker *workers[WORKERS_MAX];
    if (flags.recursive && store_names_object(l->store)) {
        l->single =
            (struct store_single){.store = l->store, .worker = &l->workers[0], .ctx = l, .on_done = found_single};
        store_single_find(&l->single);
        return;
    }
    /* --max needs the first names, and a manifest is written in order. */
    if (!flags.recursive || flags.max || l->manifest) {
        next_page(l);
        return;
    }
    for (unsigned i = 0; i < l->worker_count; i++)
        workers[i] = &l->workers[i];
    struct store_listing_options o = {
        .prefix = sbuf_str(&l->prefix), .ctx = l, .on_page = on_page, .on_done = on_listed};
    l->listing = store_listing_start(l->store, workers, l->worker_count, &o);
}

static int start_workers(struct ls *l, struct thread_pool *pool, struct err *err)
{
    struct web_options web = {.stall_timeout_ns = request_stall_ns(WEB_STALL_NS)};
    unsigned count = worker_count(0);
    int r = 0;
    store_trust(l->store, &web);
    while (r == 0 && l->worker_count < count) {
        r = worker_init(&l->workers[l->worker_count], l->worker_count, pool, &web, false, err);
        if (r == 0)
            r = loop_start(l->workers[l->worker_count++].loop, err);
    }
    return r;
}

/* Names go to stdout, which may be the same terminal: no line is drawn over another. */
static void watch(struct ls *l)
{
    char retry[RETRY_TEXT_MAX];
    struct term term;
    struct pollfd p = {.fd = l->over_fd, .events = POLLIN};
    term_init(&term, false, globals.quiet, true);
    while (poll(&p, 1, 200) <= 0) {
        pthread_mutex_lock(&l->lock);
        struct term_progress progress = {.what = "listing",
                                         .bytes_total = l->estimate.bytes,
                                         .objects_total = l->objects,
                                         .retries = store_retries(l->store),
                                         .retry = retry_text(&l->store, 1, retry)};
        pthread_mutex_unlock(&l->lock);
        if (flags.sum || progress.retry || progress.objects_total == 0)
            term_progress(&term, &progress);
    }
}

static int wait_over(struct ls *l, struct thread_pool *pool, struct err *err)
{
    l->over_fd = eventfd(0, EFD_CLOEXEC);
    if (l->over_fd < 0)
        return err_sys(err, errno, "cannot make an eventfd");
    int r = start_workers(l, pool, err);
    if (r == 0) {
        l->start.deliver = deliver_start;
        loop_post(l->workers[0].loop, &l->start);
        watch(l);
    }
    for (unsigned i = 0; i < l->worker_count; i++)
        loop_stop_and_join(l->workers[i].loop);
    return r;
}

static void print_sum(const struct ls *l)
{
    char bytes[BYTES_TEXT_MAX];
    if (globals.json) {
        auto_sbuf b = SBUF(TERM_LINE_MAX);
        term_json_begin(&b, "summary");
        term_json_u64(&b, "found", l->objects);
        term_json_u64(&b, "bytes", l->estimate.bytes);
        if (l->terms)
            estimate_add_json(&b, &l->estimate, l->terms, l->store);
        term_json_end(&b, stdout);
        return;
    }
    printf("found %" PRIu64 " objects, %" PRIu64 " bytes (%s)\n", l->objects, l->estimate.bytes,
           bytes_text(l->estimate.bytes, bytes));
    if (l->terms)
        estimate_print(&l->estimate, l->terms, l->store);
}

static int run(struct ls *l, struct err *err)
{
    struct thread_pool *pool = NULL;
    pthread_mutex_init(&l->lock, NULL);
    l->order = ls_order_new(stdout);
    int r = thread_pool_new(4, &pool, err);
    if (r == 0)
        r = wait_over(l, pool, err);
    thread_pool_free(pool);
    store_listing_free(l->listing);
    for (unsigned i = 0; i < l->worker_count; i++)
        worker_done(&l->workers[i]);
    ls_order_free(l->order);
    pthread_mutex_destroy(&l->lock);
    sbuf_done(&l->token);
    sbuf_done(&l->rounds.key);
    sbuf_done(&l->prefix);
    fd_close(&l->over_fd);
    if (r == 0 && l->failed)
        r = err_copy(err, &l->err);
    return r;
}

static void set_store(struct ls *l, struct store *s)
{
    l->store = s;
    sbuf_init(&l->prefix, 1 << 20);
    sbuf_init(&l->token, 1 << 20);
    sbuf_init(&l->rounds.key, 1 << 20);
    sbuf_add(&l->prefix, store_prefix(s));
    l->dir_len = l->prefix.len;
    while (l->dir_len > 0 && l->prefix.ptr[l->dir_len - 1] != '/')
        l->dir_len--;
}

static int found_nothing(const struct ls *l, const char *uri)
{
    struct err err;
    store_found_nothing(l->store, uri, l->excluded, &err);
    (void)exit_with(&err, globals.json);
    return EXIT_EMPTY;
}

int ls_sum(struct store *s, const char *uri, const struct filter *f, bool allow_empty,
           const struct estimate_terms *terms)
{
    struct err err;
    flags.sum = flags.recursive = true;
    struct ls l = {.filter = *f, .terms = terms, .over_fd = -1};
    set_store(&l, s);
    if (run(&l, &err) < 0)
        return (int)exit_with(&err, globals.json);
    print_sum(&l);
    return l.objects > 0 || allow_empty ? EXIT_DONE : found_nothing(&l, uri);
}

static int open_all(struct ls *l, struct store **ret_store, const char *uri, struct err *err)
{
    struct store_options o = store_defaults(uri);
    int r = store_open(&o, ret_store, err);
    if (r == 0)
        r = filter_fill(&l->filter, flags.include.items, flags.include.count, flags.exclude.items, flags.exclude.count,
                        err);
    if (r < 0)
        return r;
    set_store(l, *ret_store);
    return 0;
}

static int manifest_open(struct ls *l, struct err *err)
{
    l->manifest = flags.manifest ? fopen(flags.manifest, "we") : NULL;
    if (l->manifest || !flags.manifest)
        return 0;
    err_sys(err, errno, "cannot write '%s'", flags.manifest);
    return err_advise(err, CIS_OUTPUT_FAILED);
}

static int manifest_end(struct ls *l, struct err *err)
{
    int r = term_flush(l->manifest, flags.manifest, err);
    if (fclose(l->manifest) != 0 && r == 0)
        r = err_sys(err, errno, "cannot write '%s'", flags.manifest);
    return r < 0 ? err_advise(err, CIS_OUTPUT_FAILED) : 0;
}

/* *ret_written is negative, with *err, if the manifest could not be written. */
static int run_to_manifest(struct ls *l, int *ret_written, struct err *err)
{
    int r = *ret_written = manifest_open(l, err);
    if (r < 0)
        return 0;
    r = run(l, err);
    if (l->manifest)
        *ret_written = manifest_end(l, r == 0 ? err : ERR_IGNORED);
    return r;
}

int verb_ls(int argc, char **argv)
{
    struct err err;
    int code = verb_begin(table, usage, &argc, argv);
    if (code >= 0)
        return code;
    if (argc > 2)
        err_set(&err, ERR_INVALID, "unexpected argument '%s'; see `cistern ls --help`", argv[2]);
    else if (argc < 2)
        err_set(&err, ERR_INVALID, "ls needs URI; see `cistern ls --help`");
    if (argc != 2)
        return usage_error(&err);
    flags.recursive |= flags.sum;
    auto_store store = NULL;
    struct ls l = {.over_fd = -1};
    int written = 0, r = open_all(&l, &store, argv[1], &err);
    if (r == 0)
        r = run_to_manifest(&l, &written, &err);
    filter_done(&l.filter);
    if (r < 0 || written < 0) {
        err_wrap(&err, "ls");
        code = (int)exit_with(&err, globals.json);
        return r < 0 ? code : EXIT_ENVIRONMENT;
    }
    if (flags.sum)
        print_sum(&l);
    /* A bucket may be empty. A prefix without objects is usually a mistyped one. */
    bool may_be_empty = store_prefix(l.store).len == 0 && l.excluded == 0;
    return l.names + l.objects > 0 || may_be_empty ? EXIT_DONE : found_nothing(&l, argv[1]);
}
