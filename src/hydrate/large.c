/* SPDX-License-Identifier: Apache-2.0 */
/* A large object: a file of its length, parts that any lane may fetch, one checksum over them all. */
#include "private.h"
#include "util/file.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

static void publish(struct lane *l, struct large *g);

static void large_free(struct large *g)
{
    auto_clean_fd(&g->fd);
    free(g->first_etag);
    free(g->path);
    free(g->have);
    free(g->digests);
    free(g);
}

static uint64_t part_bytes(const struct large *g, uint32_t part)
{
    uint64_t offset, len;
    plan_part(g->entry.size_bytes, part, &offset, &len);
    return len;
}

static void take_out(struct large **list, struct large *g)
{
    while (*list && *list != g)
        list = &(*list)->next_large;
    if (*list)
        *list = g->next_large;
    g->next_large = NULL;
}

static void take_back_progress(struct large *g)
{
    for (uint32_t p = 0; p < g->part_count; p++)
        if (g->have[p])
            atomic_fetch_sub(&g->h->bytes_done, part_bytes(g, p));
}

/* The lane has nothing more to do with it. */
static void leave(struct lane *l, struct large *g)
{
    large_free(g);
    lane_unit_ended(l);
}

/* Is what is there of it of no use to the next run? The object is another one by now, or its bytes were wrong twice; or
 * it is about to be seen (a staged DIR); or the next run is not to fetch it. */
static bool is_worthless(const struct large *g, const struct err *err)
{
    const struct target *t = g->h->target;
    return err->code == ERR_CHANGED || (g->again && err->code == ERR_CORRUPT) ||
           (t->kind == TARGET_STAGED && !target_is_seen(t)) || fault_is_allowed(g->h, err);
}

/* The journal first: what it tells of must be there. Without a way to the file there is none. */
static void drop_file(struct lane *l, struct large *g)
{
    struct err err;
    int dir;
    const char *name;
    if (journal_void(g->h->journal, g->id, &err) < 0)
        hydrate_fail(g->h, &err);
    else if (tree_parent(&l->tree, g->path, &dir, &name, &err) == 0)
        target_drop(g->h->target, dir, name, g->id);
}

/* The object could not be had. */
static void fail_whole(struct lane *l, struct large *g, const struct err *err)
{
    take_back_progress(g);
    if (is_worthless(g, err))
        drop_file(l, g);
    hydrate_object_failed(g->h, g->entry.path, err, g->attempts);
    leave(l, g);
}

/* ---- its end ----------------------------------------------------------------------------------------------------- */

static int finish_file(struct lane *l, struct large *g, struct err *err)
{
    int dir;
    const char *name;
    int r = tree_parent(&l->tree, g->path, &dir, &name, err);
    if (r < 0)
        return r;
    /* The padding goes before anybody is told that the object is whole. */
    if (TEMP_FAILURE_RETRY(ftruncate(g->fd, (off_t)g->entry.size_bytes)) != 0)
        return err_sys(err, errno, "cannot cut '%s' to its length", g->path);
    r = times_set(g->fd, g->entry.mtime_ns, err);
    return r < 0 ? r : target_place(g->h->target, dir, name, g->id, object_file(&g->entry), err);
}

static void finish(struct lane *l, struct large *g)
{
    struct err err;
    if (finish_file(l, g, &err) < 0) {
        fail_whole(l, g, &err);
        return;
    }
    object_is_whole(g->h, g->id);
    leave(l, g);
}

static void mismatch(struct lane *l, struct large *g)
{
    struct err err;
    mismatch_set(&err, &g->want, &g->got);
    /* All of it once more: nobody can tell which part was wrong. */
    if (g->again || journal_void(g->h->journal, g->id, &err) < 0) {
        fail_whole(l, g, &err);
        return;
    }
    g->again = true;
    take_back_progress(g);
    memset(g->have, 0, g->part_count);
    g->left = g->part_count;
    publish(l, g);
}

/* O_DIRECT, so that what was just kept out of the page cache does not enter it now. */
static void read_back(struct work *w)
{
    struct large *g = container_of(w, struct large, verify);
    void *buffer = NULL;
    struct hash hash;
    if (posix_memalign(&buffer, 4096, SLICE_BYTES) != 0)
        out_of_memory();
    hash_init(&hash);
    hash_begin(&hash, g->want.kind);
    uint64_t at = 0;
    while (at < g->entry.size_bytes) {
        ssize_t n = pread(g->fd, buffer, SLICE_BYTES, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            err_sys(&g->err, n < 0 ? errno : EIO, "cannot read '%s' back", g->path);
            break;
        }
        size_t used = min_u64((uint64_t)n, g->entry.size_bytes - at);
        hash_update(&hash, buffer, used);
        at += used;
    }
    hash_end(&hash, &g->got);
    hash_done(&hash);
    free(buffer);
}

static void was_read_back(struct work *w)
{
    struct large *g = container_of(w, struct large, verify);
    struct lane *l = g->lane;
    l->summing--;
    if (g->err.code != 0)
        fail_whole(l, g, &g->err);
    else if (!digest_eq(&g->got, &g->want))
        mismatch(l, g);
    else
        finish(l, g);
}

static void end(struct lane *l, struct large *g)
{
    g->err.code = 0;
    if (g->want.kind == HASH_NONE) {
        atomic_fetch_add(&g->h->size_only, 1);
        finish(l, g);
        return;
    }
    if (!hash_combines(g->want.kind)) {
        g->lane = l;
        l->summing++;
        g->verify.run = read_back;
        g->verify.done = was_read_back;
        pool_submit(g->h->pool, l->worker.loop, &g->verify);
        return;
    }
    g->got = g->digests[0];
    for (uint32_t p = 1; p < g->part_count; p++)
        digest_combine(&g->got, &g->digests[p], part_bytes(g, p));
    if (digest_eq(&g->got, &g->want))
        finish(l, g);
    else
        mismatch(l, g);
}

/* ---- its parts --------------------------------------------------------------------------------------------------- */

bool large_take_part(struct hydrate *h, struct large **ret, uint32_t *ret_part)
{
    while (h->larges) {
        struct large *g = h->larges;
        while (g->next < g->part_count && g->have[g->next])
            g->next++;
        if (g->next < g->part_count) {
            *ret = g;
            *ret_part = g->next++;
            g->running++;
            return true;
        }
        take_out(&h->larges, g);
    }
    return false;
}

void large_part_done(struct lane *l, struct large *g, uint32_t part, const struct digest *d)
{
    struct hydrate *h = g->h;
    journal_part_written(h->journal, g->id, part, d);
    atomic_fetch_add(&h->bytes_done, part_bytes(g, part));
    pthread_mutex_lock(&h->lock);
    g->digests[part] = *d;
    g->have[part] = 1;
    g->running--;
    g->left--;
    bool whole = g->left == 0, last = g->running == 0;
    /* The run stops: its other parts were dropped, or nobody takes them any more. */
    bool is_left = last && !g->failed && atomic_load(&h->stopping);
    if (whole || is_left)
        take_out(&h->larges, g); /* a full window has not looked for more of it since its last part was taken */
    pthread_mutex_unlock(&h->lock);
    if (whole)
        end(l, g);
    else if (last && g->failed)
        fail_whole(l, g, &g->err);
    else if (is_left)
        leave(l, g);
}

void large_part_failed(struct lane *l, struct large *g, const struct err *err, unsigned attempts)
{
    struct hydrate *h = g->h;
    pthread_mutex_lock(&h->lock);
    if (!g->failed) {
        g->failed = true;
        g->err = *err;
        g->attempts = attempts;
        take_out(&h->larges, g);
    }
    bool last = --g->running == 0;
    pthread_mutex_unlock(&h->lock);
    if (last)
        fail_whole(l, g, &g->err);
}

void large_part_dropped(struct lane *l, struct large *g)
{
    struct hydrate *h = g->h;
    pthread_mutex_lock(&h->lock);
    take_out(&h->larges, g);
    bool last = --g->running == 0;
    pthread_mutex_unlock(&h->lock);
    if (last)
        leave(l, g);
}

void large_stop(struct lane *l)
{
    struct hydrate *h = l->h;
    for (struct large *g = l->heads; g; g = g->next_large)
        store_cancel(g->head);
    for (;;) {
        pthread_mutex_lock(&h->lock);
        struct large *g = h->larges;
        while (g && (g->lane != l || g->running > 0))
            g = g->next_large;
        if (g)
            take_out(&h->larges, g);
        pthread_mutex_unlock(&h->lock);
        if (!g)
            return;
        leave(l, g);
    }
}

/* ---- its version ------------------------------------------------------------------------------------------------- */

static bool is_first_or_same(struct large *g, const struct object *told)
{
    if (g->has_first)
        return object_is_same(&g->first, told);
    g->has_first = true;
    g->first = (struct object){.mtime_ns = told->mtime_ns, .generation = told->generation};
    if (told->etag.len) {
        g->first_etag = str_dup(told->etag);
        g->first.etag = str_of(g->first_etag);
    }
    return true;
}

int large_hold(struct large *g, const struct object *told, struct err *err)
{
    pthread_mutex_lock(&g->h->lock);
    bool holds = is_first_or_same(g, told);
    pthread_mutex_unlock(&g->h->lock);
    if (holds)
        return 0;
    err_set(err, ERR_CHANGED, "it was overwritten while its parts were fetched");
    return object_outdated(err);
}

/* ---- its beginning ----------------------------------------------------------------------------------------------- */

static void publish(struct lane *l, struct large *g)
{
    struct hydrate *h = g->h;
    if (g->left == 0) {
        end(l, g);
        return;
    }
    if (atomic_load(&h->stopping)) { /* this lane may have let go of its own already */
        leave(l, g);
        return;
    }
    pthread_mutex_lock(&h->lock);
    g->next = 0;
    g->lane = l;
    struct large **p = &h->larges;
    while (*p)
        p = &(*p)->next_large;
    *p = g;
    g->next_large = NULL;
    pthread_mutex_unlock(&h->lock);
    lanes_kick(h);
}

/* What earlier runs left of it. */
static void adopt_parts(struct large *g)
{
    enum hash_kind kind = hash_combines(g->want.kind) ? g->want.kind : HASH_NONE;
    for (uint32_t p = 0; p < g->part_count; p++)
        if (journal_has_part(g->h->journal, g->id, p, kind, &g->digests[p])) {
            g->have[p] = 1;
            g->left--;
            atomic_fetch_add(&g->h->bytes_done, part_bytes(g, p));
        }
}

/* O_DIRECT's alignment, 0 where it is not to be had. */
static uint32_t direct_align(int fd)
{
    struct statx sx;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) == 0 && (sx.stx_mask & STATX_DIOALIGN))
        return sx.stx_dio_offset_align > 0 && sx.stx_dio_offset_align <= 4096 && sx.stx_dio_mem_align <= 4096
                   ? sx.stx_dio_offset_align
                   : 0;
    return 4096; /* an older kernel: what every disk accepts */
}

static int go_direct(struct large *g, struct err *err)
{
    uint32_t align = g->h->o.direct != HYDRATE_DIRECT_OFF ? direct_align(g->fd) : 0;
    int flags = align ? fcntl(g->fd, F_GETFL) : -1;
    if (flags >= 0 && fcntl(g->fd, F_SETFL, flags | O_DIRECT) == 0)
        g->align = align;
    else if (g->h->o.direct == HYDRATE_DIRECT_ON) {
        err_set(err, ERR_UNSUPPORTED, "'%s' is on a file system that takes no direct writes", g->path);
        return err_advise(err, 2034, "directIO: auto writes through the page cache there");
    }
    return 0;
}

static int open_file(struct lane *l, struct large *g, struct err *err)
{
    int dir;
    const char *name;
    struct stat st;
    struct hydrate *h = g->h;
    /* Parts of another run are of who knows which version of what nothing pins, and no sum over all of it tells. */
    bool has_parts = journal_has_parts(h->journal, g->id),
         keep = has_parts && (g->is_pinned || hash_combines(g->want.kind));
    int r = tree_parent(&l->tree, g->path, &dir, &name, err);
    if (r == 0)
        r = target_create(h->target, dir, name, g->id, O_RDWR, keep, &g->fd, err);
    if (r < 0)
        return r;
    if (has_parts && (fstat(g->fd, &st) != 0 || (uint64_t)st.st_size < g->entry.size_bytes)) {
        /* They go, or somebody took the file away. Said durably, or a later run would believe in parts of the file that
         * is now made anew. */
        r = journal_void(h->journal, g->id, err);
        if (r < 0)
            return r;
    }
    if (TEMP_FAILURE_RETRY(fallocate(g->fd, 0, 0, (off_t)g->entry.size_bytes)) != 0 && errno != EOPNOTSUPP)
        return err_sys(err, errno, "cannot make room for '%s'", g->path);
    return go_direct(g, err);
}

static void head_done(void *ctx, const struct store_reply *r)
{
    struct large *g = ctx;
    struct lane *l = g->lane;
    take_out(&l->heads, g);
    g->head = NULL;
    l->summing--;
    atomic_fetch_add(&g->h->requests, r->requests);
    if (atomic_load(&g->h->stopping)) {
        leave(l, g);
        return;
    }
    /* Who may not ask, or cannot, may be let read all the same (a policy that allows GET alone, a server without HEAD):
     * the GETs will tell, with a document that says why. */
    bool is_refused = r->code == -ERR_DENIED || r->code == -ERR_UNSUPPORTED || r->code == -ERR_INVALID;
    if (r->code < 0 && !is_refused) {
        fail_whole(l, g, &r->err);
        return;
    }
    if (r->code == 0) {
        g->want = digest_better(&g->want, &r->object.digest);
        is_first_or_same(g, &r->object);
    }
    adopt_parts(g);
    publish(l, g);
}

/* An S3 listing tells at most an MD5. One request tells what the store knows of the whole object. */
static bool wants_head(const struct large *g)
{
    return g->h->o.verify == HYDRATE_VERIFY_AUTO && !hash_combines(g->want.kind) &&
           strcmp(store_scheme(object_store(g->h, &g->entry)), "s3") == 0;
}

void large_begin(struct lane *l, uint64_t id, const struct index_entry *e)
{
    struct err err;
    struct object object;
    struct large *g = xcalloc(1, sizeof *g);
    *g = (struct large){.h = l->h, .lane = l, .id = id, .entry = *e, .fd = -1, .want = digest_wanted(l->h, e)};
    g->path = str_dup(e->path);
    g->is_pinned = object_is_pinned(&(struct object){.etag = e->etag, .generation = e->generation});
    g->part_count = g->left = plan_part_count(e->size_bytes);
    g->have = xcalloc(g->part_count, 1);
    g->digests = xcalloc(g->part_count, sizeof *g->digests);
    int r = open_file(l, g, &err);
    if (r < 0 && (r = conflict_settle(l, id, e, &err)) == 0)
        r = open_file(l, g, &err);
    if (r < 0)
        fail_whole(l, g, &err);
    else if (r > 0)
        leave(l, g);
    if (r != 0)
        return;
    if (!wants_head(g)) {
        adopt_parts(g);
        publish(l, g);
        return;
    }
    object_of_entry(l, e, &object);
    g->next_large = l->heads;
    l->heads = g;
    l->summing++;
    g->head = store_head(object_store(l->h, e), &l->worker, object.key, head_done, g);
}
