/* SPDX-License-Identifier: Apache-2.0 */
#include "local.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/thread.h"
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <sys/xattr.h>

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int unreadable(struct err *err, const char *what)
{
    err_sys(err, errno, "%s", what);
    if (err->sys == EIO || err->sys == ENXIO || err->sys == ENODEV)
        err->sys = 0;
    return err->code == ERR_DENIED ? err_advise(err, CIS_ACCESS_DENIED) : -(int)err->code;
}

static int open_object(struct local_job *j, struct stat *ret_st, struct err *err)
{
    struct local *l = j->job.store->self;
    struct str key = j->job.args.write.key;
    int root;
    int r = path_check(key, err);
    if (r == 0)
        r = local_root(l, false, &root, err);
    if (r < 0)
        return r;
    /* O_NONBLOCK: opening a pipe of that name must not block. */
    j->fd = path_open_links(root, key.ptr, O_RDONLY | O_NONBLOCK);
    if (j->fd < 0 && (errno == EXDEV || errno == ELOOP))
        return err_set(err, ERR_NOT_FOUND, "not a regular file, or a link out of the directory");
    if (j->fd < 0)
        return unreadable(err, "cannot open it");
    if (fstat(j->fd, ret_st) != 0)
        return unreadable(err, "cannot read its metadata");
    if (!S_ISREG(ret_st->st_mode))
        return err_set(err, ERR_NOT_FOUND, "it is not a regular file");
    return 0;
}

/* Compares the file with its listed state, before the first byte and after the last. A file that was written in between
 * has another mtime. */
static int check_unchanged(const struct local_job *j, const struct stat *st, struct err *err)
{
    char now[LOCAL_ETAG_MAX];
    struct str want = j->job.args.object.etag, have = local_etag(st, now);
    if (want.len == 0 || str_eq(want, have))
        return 0;
    err_set(err, ERR_CHANGED, "it was %.*s when it was listed and is %.*s now", STR_FMT(want), STR_FMT(have));
    return store_object_outdated(err);
}

static int open_unchanged(struct local_job *j, struct err *err)
{
    struct stat st;
    int r = open_object(j, &st, err);
    if (r == 0)
        r = check_unchanged(j, &st, err);
    if (r == 0)
        local_describe(j->job.args.write.key, &st, j->etag, &j->job.reply.object);
    return r;
}

/* Reads up to `want` bytes into buf; fewer at the end of the file. */
static int fill(struct local_job *j, uint64_t want, struct err *err)
{
    if (!j->buf && want)
        j->buf = xcalloc(1, want);
    for (j->filled = 0; j->filled < want;) {
        uint64_t at = j->job.args.offset + j->moved + j->filled;
        ssize_t n = pread(j->fd, j->buf + j->filled, want - j->filled, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return unreadable(err, "cannot read it");
        if (n == 0)
            return 0;
        j->filled += (size_t)n;
    }
    return 0;
}

static int visit_read(struct local_job *j, struct err *err)
{
    const struct job_args *a = &j->job.args;
    struct stat st;
    int r = j->fd < 0 ? open_unchanged(j, err) : 0;
    uint64_t want = min_u64(a->len - j->moved, LOCAL_CHUNK);
    if (r == 0)
        r = fill(j, want, err);
    bool last = j->moved + want == a->len || j->filled < want;
    if (r < 0 || !last)
        return r;
    if (fstat(j->fd, &st) != 0)
        return unreadable(err, "cannot read its metadata");
    r = check_unchanged(j, &st, err);
    if (r == 0 && j->filled < want)
        return err_set(err, ERR_IO, "it ends after %" PRIu64 " bytes", a->offset + j->moved + j->filled);
    return r;
}

static int deliver(struct local_job *j)
{
    const struct job_args *a = &j->job.args;
    if (!j->head_reported && a->on_head)
        a->on_head(j->job.ctx, &j->job.reply.object);
    j->head_reported = true;
    return j->filled ? a->on_data(j->job.ctx, j->buf, j->filled) : 0;
}

static void give(struct local_job *j)
{
    uint64_t len = j->job.args.len;
    int r = j->job.cancelled ? 0 : deliver(j);
    if (j->job.cancelled) { /* before a pause: no caller resumes a job that it cancelled */
        local_end(j, err_set(&j->err, ERR_CANCELLED, "cancelled"));
    } else if (r == WEB_PAUSE) {
        j->paused = true;
    } else if (r < 0) {
        err_set(&j->err, (enum err_code) - r, "given up by the reader");
        local_end(j, r);
    } else if ((j->moved += j->filled) == len) {
        local_end(j, 0);
    } else {
        local_visit_paced(j, min_u64(len - j->moved, LOCAL_CHUNK), visit_read, give);
    }
}

static void fire_give(struct timer *t)
{
    struct local_job *j = container_of(t, struct local_job, pause);
    j->waiting = false;
    if (j->job.cancelled)
        local_abandon(j, err_set(&j->err, ERR_CANCELLED, "cancelled"));
    else
        give(j);
}

void local_wake(struct local_job *j)
{
    j->paused = false;
    j->waiting = true;
    j->pause.fire = fire_give;
    loop_timer_set(j->job.worker->loop, &j->pause, 0);
}

static int visit_head(struct local_job *j, struct err *err)
{
    struct stat st;
    int r = open_object(j, &st, err);
    if (r == 0)
        local_describe(j->job.args.write.key, &st, j->etag, &j->job.reply.object);
    ssize_t n = r == 0 ? fgetxattr(j->fd, LOCAL_XATTR_OWNER, j->owner, sizeof j->owner) : -1;
    if (n > 0)
        j->job.reply.owner = (struct str){j->owner, (size_t)n};
    return r;
}

static int visit_hash(struct local_job *j, struct err *err)
{
    char now[LOCAL_ETAG_MAX];
    struct stat st;
    struct store_object *o = &j->job.reply.object;
    if (j->moved == 0)
        hash_begin(&j->hash, j->job.args.write.digest_kind);
    int r = fill(j, min_u64(o->size_bytes - j->moved, LOCAL_CHUNK), err);
    if (r < 0)
        return r;
    hash_update(&j->hash, j->buf, j->filled);
    j->moved += j->filled;
    if (j->filled > 0 && j->moved < o->size_bytes)
        return 0;
    if (fstat(j->fd, &st) != 0)
        return unreadable(err, "cannot read its metadata");
    if (j->moved < o->size_bytes || !str_eq(o->etag, local_etag(&st, now)))
        return err_set(err, ERR_CHANGED, "it was written to while it was read");
    hash_end(&j->hash, &o->digest);
    return 0;
}

static void hashed(struct local_job *j)
{
    if (j->job.reply.object.digest.kind != HASH_NONE)
        local_end(j, 0);
    else if (j->job.cancelled)
        local_end(j, err_set(&j->err, ERR_CANCELLED, "cancelled"));
    else
        local_visit(j, visit_hash, hashed);
}

/* Files have no stored checksum: compute it when one is requested. */
static void headed(struct local_job *j)
{
    const struct job_args *a = &j->job.args;
    if (a->write.digest_kind == HASH_NONE || a->alike_bytes != j->job.reply.object.size_bytes)
        local_end(j, 0);
    else
        hashed(j);
}

/* ---- listing ----------------------------------------------------------------------------------------------------- */

/* A token is "<id of the walk>:<last key>". Idle walks wait in a small table for the next page; an evicted one is
 * found again by its key. */
static struct local_walk *take_idle(struct local *l, struct str id_text)
{
    struct local_walk *w = NULL;
    uint64_t id;
    if (str_to_u64(id_text, &id, ERR_IGNORED) < 0)
        return NULL;
    auto_lock(&l->lock);
    for (size_t i = 0; i < countof(l->idle) && !w; i++)
        if (l->idle[i].walk && l->idle[i].id == id)
            w = take(&l->idle[i].walk);
    return w;
}

static uint64_t put_idle(struct local *l, struct local_walk *own_w)
{
    uint64_t id = clock_random();
    pthread_mutex_lock(&l->lock);
    struct idle_walk *slot = &l->idle[l->next_idle++ % countof(l->idle)];
    struct local_walk *crowded_out = slot->walk;
    *slot = (struct idle_walk){.id = id, .walk = own_w};
    pthread_mutex_unlock(&l->lock);
    walk_free(crowded_out);
    return id;
}

static int begin_walk(struct local_job *j, struct local_walk **ret, struct err *err)
{
    struct local *l = j->job.store->self;
    const struct store_page *p = &j->job.args.page;
    struct str last = p->token, id;
    struct local_walk *w = str_split(&last, ':', &id) ? take_idle(l, id) : NULL;
    if (w) {
        *ret = w;
        return 0;
    }
    struct walk_options o = {.prefix = p->prefix,
                             .start_after = p->token.len ? last : p->start_after,
                             .end_before = p->end_before,
                             .delimited = p->delimited};
    int r = local_root(l, false, &o.root, err);
    return r < 0 ? r : walk_open(&o, ret, err);
}

static int visit_list(struct local_job *j, struct err *err)
{
    struct store_page *p = &j->job.args.page;
    size_t most = p->keys_max ? min_u64(p->keys_max, PAGE_OBJECTS_MAX) : LOCAL_PAGE_KEYS;
    struct walk_entry e;
    auto_walk w = NULL;
    int r = begin_walk(j, &w, err);
    if (r < 0)
        return r;
    unsigned skipped = walk_skipped(w);
    while (j->page.count < most && (r = walk_next(w, &e, err)) > 0) {
        char etag[LOCAL_ETAG_MAX];
        struct store_object o = {.key = e.path};
        if (!e.is_directory)
            local_describe(e.path, &e.st, etag, &o);
        if (!object_page_add(&j->page, &o))
            return err_set(err, ERR_NO_SPACE, "a page of the listing is too large");
    }
    if (r < 0)
        return r;
    j->job.reply.skipped = walk_skipped(w) - skipped;
    if (j->job.reply.skipped)
        sbuf_add(&j->skipped, walk_last_skipped(w));
    j->job.reply.last_skipped = sbuf_str(&j->skipped);
    object_page_end(&j->page);
    if (j->page.count == most) {
        struct store_object *last = &j->page.objects[most - 1];
        sbuf_addf(&j->token, "%" PRIu64 ":", put_idle(j->job.store->self, take(&w)));
        sbuf_add(&j->token, last->key);
    }
    j->job.objects = j->page.objects;
    j->job.object_count = j->page.count;
    j->job.next_token = sbuf_str(&j->token);
    return 0;
}

/* ---- dispatch ---------------------------------------------------------------------------------------------------- */

void local_read_start(struct local_job *j)
{
    if (j->job.op == STORE_OP_GET)
        local_visit_paced(j, min_u64(j->job.args.len, LOCAL_CHUNK), visit_read, give);
    else if (j->job.op == STORE_OP_HEAD)
        local_visit(j, visit_head, headed);
    else
        local_visit(j, visit_list, local_end_well);
}
