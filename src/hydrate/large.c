/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

static void queue_parts(struct hydrate_lane *l, struct hydrate_large *g);

static void large_free(struct hydrate_large *g)
{
    fd_close(&g->fd);
    free(g->first.etag);
    free(g->path);
    free(g->have);
    free(g->digests);
    free(g);
}

static uint64_t part_bytes(const struct hydrate_large *g, uint32_t part)
{
    uint64_t offset, len;
    plan_part(g->entry.size_bytes, part, &offset, &len);
    return len;
}

static void subtract_progress(struct hydrate_large *g)
{
    for (uint32_t p = 0; p < g->part_count; p++)
        if (g->have[p])
            atomic_fetch_sub(&g->h->progress.bytes_done, part_bytes(g, p));
}

static void discard(struct hydrate_lane *l, struct hydrate_large *g)
{
    large_free(g);
    hydrate_queue_unit_ended(l);
}

/* Whether the next run cannot use the parts: the object has changed, its bytes were wrong twice, the directory is about
 * to appear (staged), or the next run will not fetch it. */
static bool is_worthless(const struct hydrate_large *g)
{
    const struct target *t = g->h->target;
    return g->err.code == ERR_CHANGED || (g->again && g->err.code == ERR_CORRUPT) ||
           (t->kind == TARGET_STAGED && !target_is_visible(t)) || fault_is_allowed(g->h, g->kind);
}

/* The journal first: parts that it records must exist. */
static void drop_file(struct hydrate_lane *l, struct hydrate_large *g)
{
    struct err err;
    int dir;
    const char *name;
    if (journal_void(g->h->journal, g->id, &err) < 0)
        run_failed(g->h, FAULT_OTHER, &err);
    else if (tree_parent(&l->tree, g->path, &dir, &name, &err) == 0)
        target_drop(g->h->target, dir, name, g->id);
}

/* Fails the object with g->err. */
static void fail_object(struct hydrate_lane *l, struct hydrate_large *g)
{
    subtract_progress(g);
    if (is_worthless(g))
        drop_file(l, g);
    object_failed(g->h, g->kind, g->entry.path, &g->err, g->attempts);
    discard(l, g);
}

/* ---- end of a large object --------------------------------------------------------------------------------------- */

static int finish_file(struct hydrate_lane *l, struct hydrate_large *g, struct err *err)
{
    int dir;
    const char *name;
    int r = tree_parent(&l->tree, g->path, &dir, &name, err);
    if (r < 0)
        return r;
    /* Removes the padding, before the object counts as whole. */
    if (TEMP_FAILURE_RETRY(ftruncate(g->fd, (off_t)g->entry.size_bytes)) != 0)
        return err_sys(err, errno, "cannot truncate '%s'", g->path);
    r = times_set(g->fd, g->entry.mtime_ns, err);
    return r < 0 ? r : target_place(g->h->target, dir, name, g->id, object_file(&g->entry), err);
}

static void finish(struct hydrate_lane *l, struct hydrate_large *g)
{
    if (finish_file(l, g, &g->err) < 0) {
        fail_object(l, g);
        return;
    }
    if (g->want.kind == HASH_NONE)
        atomic_fetch_add(&g->h->progress.size_only, 1);
    object_completed(g->h, g->id);
    discard(l, g);
}

static void mismatch(struct hydrate_lane *l, struct hydrate_large *g)
{
    mismatch_set(&g->err, &g->want, &g->got);
    /* The wrong part is not known: all are fetched once more. */
    if (g->again || journal_void(g->h->journal, g->id, &g->err) < 0) {
        fail_object(l, g);
        return;
    }
    g->again = true;
    subtract_progress(g);
    memset(g->have, 0, g->part_count);
    g->left = g->part_count;
    queue_parts(l, g);
}

/* O_DIRECT keeps the object out of the page cache. */
static void read_back(struct work *w)
{
    struct hydrate_large *g = container_of(w, struct hydrate_large, verify);
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
    struct hydrate_large *g = container_of(w, struct hydrate_large, verify);
    struct hydrate_lane *l = g->lane;
    l->summing--;
    if (g->err.code != 0)
        fail_object(l, g);
    else if (!digest_eq(&g->got, &g->want))
        mismatch(l, g);
    else
        finish(l, g);
}

static void end(struct hydrate_lane *l, struct hydrate_large *g)
{
    g->err.code = 0;
    if (g->want.kind == HASH_NONE) {
        finish(l, g);
        return;
    }
    if (!hash_combines(g->want.kind)) {
        g->lane = l;
        l->summing++;
        g->verify.run = read_back;
        g->verify.done = was_read_back;
        thread_pool_submit(g->h->threads, l->worker.loop, &g->verify);
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

/* ---- parts ------------------------------------------------------------------------------------------------------- */

void large_part_done(struct hydrate_lane *l, struct hydrate_large *g, uint32_t part, const struct digest *d)
{
    struct hydrate *h = g->h;
    journal_part_written(h->journal, g->id, part, d);
    atomic_fetch_add(&h->progress.bytes_done, part_bytes(g, part));
    pthread_mutex_lock(&h->queue.lock);
    g->digests[part] = *d;
    g->have[part] = 1;
    g->running--;
    g->left--;
    bool whole = g->left == 0, last = g->running == 0;
    /* The run stops: its other parts were dropped, or are not handed out. */
    bool is_left = last && !g->failed && atomic_load(&h->stopping);
    if (whole || is_left)
        hydrate_queue_remove(&h->queue, g);
    pthread_mutex_unlock(&h->queue.lock);
    if (whole)
        end(l, g);
    else if (last && g->failed)
        fail_object(l, g);
    else if (is_left)
        discard(l, g);
}

void large_part_failed(struct hydrate_lane *l, struct hydrate_large *g, enum hydrate_fault_kind kind,
                       const struct err *err, unsigned attempts)
{
    struct hydrate *h = g->h;
    pthread_mutex_lock(&h->queue.lock);
    if (!g->failed) {
        g->failed = true;
        g->kind = kind;
        g->err = *err;
        g->attempts = attempts;
        hydrate_queue_remove(&h->queue, g);
    }
    bool last = --g->running == 0;
    pthread_mutex_unlock(&h->queue.lock);
    if (last)
        fail_object(l, g);
}

void large_part_dropped(struct hydrate_lane *l, struct hydrate_large *g)
{
    struct hydrate *h = g->h;
    pthread_mutex_lock(&h->queue.lock);
    hydrate_queue_remove(&h->queue, g);
    bool last = --g->running == 0;
    pthread_mutex_unlock(&h->queue.lock);
    if (last)
        discard(l, g);
}

void large_stop(struct hydrate_lane *l)
{
    struct hydrate *h = l->h;
    struct hydrate_large *g;
    struct list idle = {0};
    list_foreach (&l->heads, g, node)
        store_cancel(g->head);
    pthread_mutex_lock(&h->queue.lock);
    list_foreach (&h->queue.larges, g, node) {
        if (g->lane != l || g->running > 0)
            continue;
        hydrate_queue_remove(&h->queue, g);
        list_add(&idle, &g->node);
    }
    pthread_mutex_unlock(&h->queue.lock);
    while ((g = list_pop(&idle, struct hydrate_large, node)) != NULL)
        discard(l, g);
}

/* ---- version ----------------------------------------------------------------------------------------------------- */

static bool is_first_or_same(struct hydrate_large *g, const struct store_object *reply)
{
    if (g->first.is_known)
        return store_object_is_same(&g->first.object, reply);
    g->first.is_known = true;
    g->first.object = (struct store_object){.mtime_ns = reply->mtime_ns, .generation = reply->generation};
    if (reply->etag.len) {
        g->first.etag = str_dup(reply->etag);
        g->first.object.etag = str_of(g->first.etag);
    }
    return true;
}

int large_check_version(struct hydrate_large *g, const struct store_object *reply, struct err *err)
{
    pthread_mutex_lock(&g->h->queue.lock);
    bool is_same = is_first_or_same(g, reply);
    pthread_mutex_unlock(&g->h->queue.lock);
    if (is_same)
        return 0;
    err_set(err, ERR_CHANGED, "it was overwritten while its parts were fetched");
    return store_object_outdated(err);
}

/* ---- start of a large object ------------------------------------------------------------------------------------- */

static void queue_parts(struct hydrate_lane *l, struct hydrate_large *g)
{
    struct hydrate *h = g->h;
    if (g->left == 0) {
        end(l, g);
        return;
    }
    if (atomic_load(&h->stopping)) { /* large_stop() may have run already */
        discard(l, g);
        return;
    }
    pthread_mutex_lock(&h->queue.lock);
    g->next = 0;
    g->lane = l;
    g->is_queued = true;
    list_add(&h->queue.larges, &g->node);
    pthread_mutex_unlock(&h->queue.lock);
    lanes_wake(h);
}

static void adopt_parts(struct hydrate_large *g)
{
    enum hash_kind kind = hash_combines(g->want.kind) ? g->want.kind : HASH_NONE;
    for (uint32_t p = 0; p < g->part_count; p++)
        if (journal_has_part(g->h->journal, g->id, p, kind, &g->digests[p])) {
            g->have[p] = 1;
            g->left--;
            atomic_fetch_add(&g->h->progress.bytes_done, part_bytes(g, p));
        }
}

/* The alignment that O_DIRECT needs; 0: unsupported. */
static uint32_t direct_align(int fd)
{
    struct statx sx;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) == 0 && (sx.stx_mask & STATX_DIOALIGN))
        return sx.stx_dio_offset_align > 0 && sx.stx_dio_offset_align <= 4096 && sx.stx_dio_mem_align <= 4096
                   ? sx.stx_dio_offset_align
                   : 0;
    return 4096; /* an older kernel: every disk accepts this */
}

static int go_direct(struct hydrate_large *g, struct err *err)
{
    uint32_t align = g->h->o.direct != HYDRATE_DIRECT_OFF ? direct_align(g->fd) : 0;
    int flags = align ? fcntl(g->fd, F_GETFL) : -1;
    if (flags >= 0 && fcntl(g->fd, F_SETFL, flags | O_DIRECT) == 0)
        g->align = align;
    else if (g->h->o.direct == HYDRATE_DIRECT_ON)
        return err_fail(err, ERR_UNSUPPORTED, CIS_DIRECT_IO_UNSUPPORTED,
                        "'%s' is on a file system without direct writes (O_DIRECT)", g->path);
    return 0;
}

static int open_file(struct hydrate_lane *l, struct hydrate_large *g, struct err *err)
{
    int dir;
    const char *name;
    struct stat st;
    struct hydrate *h = g->h;
    /* Without a pin or a combining checksum, parts of an earlier run may be of another version. */
    bool has_parts = journal_has_parts(h->journal, g->id),
         keep = has_parts && (g->is_pinned || hash_combines(g->want.kind));
    int r = tree_parent(&l->tree, g->path, &dir, &name, err);
    if (r == 0)
        r = target_create(h->target, dir, name, g->id, O_RDWR, keep, &g->fd, err);
    if (r < 0)
        return r;
    if (has_parts && (fstat(g->fd, &st) != 0 || (uint64_t)st.st_size < g->entry.size_bytes)) {
        /* The parts are not kept, or the file is gone. Recorded durably: a later run must not rely on them. */
        r = journal_void(h->journal, g->id, err);
        if (r < 0)
            return r;
    }
    if (TEMP_FAILURE_RETRY(fallocate(g->fd, 0, 0, (off_t)g->entry.size_bytes)) != 0 && errno != EOPNOTSUPP)
        return err_sys(err, errno, "cannot allocate '%s'", g->path);
    return go_direct(g, err);
}

/* A refused HEAD has used up its attempts. */
static void note_head(struct hydrate_lane *l, const struct store_reply *r)
{
    uint64_t now = loop_now_ns(l->worker.loop);
    if (r->slow_down)
        outage_check(l->h, window_refused(&l->h->window, now - min_u64(r->total_ns, now), now), r->total_ns, &r->err);
    else if (r->first_byte_ns)
        window_served(&l->h->window, now);
}

static void head_done(void *ctx, const struct store_reply *r)
{
    struct hydrate_large *g = ctx;
    struct hydrate_lane *l = g->lane;
    list_remove(&l->heads, &g->node);
    g->head = NULL;
    l->summing--;
    atomic_fetch_add(&g->h->progress.requests, r->requests);
    note_head(l, r);
    if (atomic_load(&g->h->stopping)) {
        discard(l, g);
        return;
    }
    /* A policy may allow GET alone, and a server may lack HEAD: the GETs will show, with the store's own reason. */
    bool is_refused = r->code == -ERR_DENIED || r->code == -ERR_UNSUPPORTED || r->code == -ERR_INVALID;
    if (r->code < 0 && !is_refused) {
        g->kind = fault_kind_of_reply(r);
        g->err = r->err;
        fail_object(l, g);
        return;
    }
    if (r->code == 0) {
        g->want = digest_better(&g->want, &r->object.digest);
        is_first_or_same(g, &r->object);
    }
    adopt_parts(g);
    queue_parts(l, g);
}

/* An S3 listing has at most an MD5; HEAD has the checksum of the whole object. */
static bool wants_head(const struct hydrate_large *g)
{
    return g->h->o.verify == HYDRATE_VERIFY_AUTO && !hash_combines(g->want.kind) &&
           !store_caps(object_store(g->h, &g->entry))->lists_best_digest;
}

bool large_begin(struct hydrate_lane *l, uint64_t id, const struct index_entry *e)
{
    struct store_object object;
    struct hydrate_large *g = xcalloc(1, sizeof *g);
    *g = (struct hydrate_large){.h = l->h, .lane = l, .id = id, .entry = *e, .fd = -1, .want = digest_wanted(l->h, e)};
    g->path = str_dup(e->path);
    g->is_pinned = store_object_is_pinned(&(struct store_object){.etag = e->etag, .generation = e->generation});
    g->part_count = g->left = plan_part_count(e->size_bytes);
    g->have = xcalloc(g->part_count, 1);
    g->digests = xcalloc(g->part_count, sizeof *g->digests);
    int r = open_file(l, g, &g->err);
    if (r < 0 && (r = conflict_resolve(l, id, e, &g->kind, &g->err)) == 0)
        r = open_file(l, g, &g->err);
    if (r < 0)
        fail_object(l, g);
    else if (r > 0)
        discard(l, g);
    if (r != 0)
        return false;
    if (!wants_head(g)) {
        adopt_parts(g);
        queue_parts(l, g);
        return false;
    }
    object_of_entry(l, e, &object);
    list_add(&l->heads, &g->node);
    l->summing++;
    g->head = store_head(object_store(l->h, e), &l->worker, object.key, head_done, g);
    return true;
}
