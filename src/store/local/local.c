/* SPDX-License-Identifier: Apache-2.0 */
/* file://: the regular files below a directory as objects. Disk access runs on the pool, one visit at a time; the
 * caller's callbacks run on the loop between two visits. */
#include "local.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/thread.h"
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

/* ---- the directory ----------------------------------------------------------------------------------------------- */

/* A directory, or a path that does not exist yet, is listed as a tree; any other path is one object in its parent. */
static void split_root(const struct store_uri *u, char **ret_root, struct str *ret_prefix)
{
    struct str path = u->prefix;
    struct stat st;
    auto_mem char *whole = str_dup(path);
    *ret_prefix = STR_NULL;
    if (!str_ends(path, STR("/")) && stat(whole, &st) == 0 && !S_ISDIR(st.st_mode)) {
        size_t slash = path.len;
        while (path.ptr[slash - 1] != '/')
            slash--;
        *ret_prefix = str_from(path, slash);
        path = str_sub(path, 0, slash);
    }
    while (path.len > 1 && path.ptr[path.len - 1] == '/')
        path.len--;
    *ret_root = str_dup(path);
}

static int local_open(struct store *s, const struct store_options *o, const struct store_uri *u, struct err *err)
{
    (void)o;
    (void)err;
    struct local *l = s->self = xcalloc(1, sizeof *l);
    struct str prefix;
    pthread_mutex_init(&l->lock, NULL);
    l->root = -1;
    split_root(u, &l->path, &prefix);
    free(s->bucket);
    free(s->prefix);
    s->bucket = str_dup(str_of(l->path));
    s->prefix = str_dup(prefix);
    s->prefix_len = prefix.len;
    return 0;
}

static void local_close(struct store *s)
{
    struct local *l = s->self;
    if (!l)
        return;
    for (size_t i = 0; i < countof(l->idle); i++)
        walk_free(l->idle[i].walk);
    if (l->root >= 0)
        close(l->root);
    pthread_mutex_destroy(&l->lock);
    free(l->path);
    free(l);
}

int local_root(struct local *l, bool make, int *ret, struct err *err)
{
    auto_lock(&l->lock);
    int r = 0;
    if (l->root < 0)
        r = dir_open(AT_FDCWD, l->path, &l->root, err);
    if (r == -ERR_NOT_FOUND && make)
        r = dir_make_path(l->path, 0777, &l->root, err);
    if (r == -ERR_NOT_FOUND)
        err_advise(err, CIS_BUCKET_NOT_FOUND);
    if (r == -ERR_DENIED && !make)
        err_advise(err, CIS_ACCESS_DENIED);
    *ret = l->root;
    return r;
}

/* ---- a visit to the disk ----------------------------------------------------------------------------------------- */

static struct local_job *of_work(struct work *w)
{
    return container_of(w, struct local_job, work);
}

static void run_visit(struct work *w)
{
    struct local_job *j = of_work(w);
    uint64_t began = clock_now_ns();
    j->code = j->visit(j, &j->err);
    j->visit_ns = clock_now_ns() - began;
}

void local_end(struct local_job *j, int code)
{
    if (code < 0) {
        char name[JOB_NAME_MAX];
        enum err_id id = j->err.id                ? j->err.id
                         : code == -ERR_NOT_FOUND ? CIS_OBJECT_NOT_FOUND
                         : code == -ERR_DENIED    ? CIS_ACCESS_DENIED
                                                  : 0;
        err_wrap(&j->err, "%s", job_name(&j->job, name));
        j->err.id = id;
        job_fail(&j->job, &j->err);
    }
    job_count_request(&j->job, code < 0 ? err_code_name((enum err_code) - code) : "200", j->first_visit_ns,
                      j->visit_ns);
    j->running = false;
    job_done(&j->job);
}

static void visited(struct work *w)
{
    struct local_job *j = of_work(w);
    j->running = false;
    if (j->first_visit_ns == 0)
        j->first_visit_ns = j->visit_ns;
    if (j->code < 0)
        local_end(j, j->code);
    else
        j->after(j);
}

void local_visit(struct local_job *j, local_visit_fn *visit, void (*after)(struct local_job *j))
{
    j->visit = visit;
    j->after = after;
    j->running = true;
    j->work = (struct work){.run = run_visit, .done = visited};
    pool_submit(j->job.worker->pool, j->job.worker->loop, &j->work);
}

static void fire_after_rate(struct timer *t)
{
    struct local_job *j = container_of(t, struct local_job, pause);
    j->waiting = false;
    local_visit(j, j->visit, j->after);
}

/* The next visit, which will move `bytes`, no sooner than the rate allows. */
void local_visit_paced(struct local_job *j, uint64_t bytes, local_visit_fn *visit, void (*after)(struct local_job *j))
{
    struct rate *rate = j->job.args.rate;
    uint64_t wait_ns = rate ? rate_reserve(rate, bytes, clock_now_ns()) : 0;
    if (wait_ns == 0) {
        local_visit(j, visit, after);
        return;
    }
    j->visit = visit;
    j->after = after;
    j->waiting = true;
    j->pause.fire = fire_after_rate;
    loop_timer_set(j->job.worker->loop, &j->pause, wait_ns);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static struct str etag_of(const struct stat *st, char *buf, size_t room)
{
    int n = snprintf(buf, room, "\"%" PRIx64 ".%lx-%" PRIx64 "-%" PRIx64 "\"", (uint64_t)st->st_mtim.tv_sec,
                     st->st_mtim.tv_nsec, (uint64_t)st->st_size, (uint64_t)st->st_ino);
    return (struct str){buf, (size_t)n};
}

void local_describe(struct str key, const struct stat *st, char *etag, struct store_object *ret)
{
    *ret = (struct store_object){.key = key,
                                 .size_bytes = (uint64_t)st->st_size,
                                 .mtime_ns = time_from_spec(st->st_mtim),
                                 .etag = etag_of(st, etag, LOCAL_ETAG_MAX)};
}

/* A damaged source file fails alone: the other files are on disk too, but may be fine. */
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
    struct str key = j->job.args.key;
    int root;
    int r = path_check(key, err);
    if (r == 0)
        r = local_root(l, false, &root, err);
    if (r < 0)
        return r;
    /* O_NONBLOCK: a pipe of that name must not hold us. */
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
    struct str want = j->job.args.object.etag, have = etag_of(st, now, sizeof now);
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
        local_describe(j->job.args.key, &st, j->etag, &j->job.reply.object);
    return r;
}

/* Up to `want` bytes into buf; fewer at the end of the file. */
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

static void give(struct local_job *j)
{
    const struct job_args *a = &j->job.args;
    if (!j->told && a->on_head)
        a->on_head(j->job.ctx, &j->job.reply.object);
    j->told = true;
    int r = j->filled ? a->on_data(j->job.ctx, j->buf, j->filled) : 0;
    if (r == WEB_PAUSE) {
        j->paused = true;
        return;
    }
    j->moved += j->filled;
    if (r < 0) {
        err_set(&j->err, (enum err_code) - r, "given up by the reader");
        local_end(j, r);
    } else if (j->job.cancelled) {
        local_end(j, err_set(&j->err, ERR_CANCELLED, "cancelled"));
    } else if (j->moved == a->len) {
        local_end(j, 0);
    } else {
        local_visit_paced(j, min_u64(a->len - j->moved, LOCAL_CHUNK), visit_read, give);
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

static void wake(struct local_job *j)
{
    j->paused = false;
    j->waiting = true;
    j->pause.fire = fire_give;
    loop_timer_set(j->job.worker->loop, &j->pause, 0);
}

static void local_resume(struct store_job *job)
{
    struct local_job *j = container_of(job, struct local_job, job);
    if (j->paused)
        wake(j);
}

/* A visit under way cannot be called back: it is heard out. */
static void local_stop(struct store_job *job)
{
    struct local_job *j = container_of(job, struct local_job, job);
    if (j->waiting)
        loop_timer_cancel(job->worker->loop, &j->pause);
    if (j->waiting || j->paused)
        wake(j);
}

static int visit_head(struct local_job *j, struct err *err)
{
    struct stat st;
    int r = open_object(j, &st, err);
    if (r == 0)
        local_describe(j->job.args.key, &st, j->etag, &j->job.reply.object);
    ssize_t n = r == 0 ? fgetxattr(j->fd, LOCAL_XATTR_OWNER, j->owner, sizeof j->owner) : -1;
    if (n > 0)
        j->job.reply.owner = (struct str){j->owner, (size_t)n};
    return r;
}

static void end_well(struct local_job *j)
{
    local_end(j, 0);
}

/* The next bytes of the object into the hash; behind the last of them, it must still be the object that it was. */
static int visit_hash(struct local_job *j, struct err *err)
{
    char now[LOCAL_ETAG_MAX];
    struct stat st;
    struct store_object *o = &j->job.reply.object;
    if (j->moved == 0)
        hash_begin(&j->hash, j->job.args.digest_kind);
    int r = fill(j, min_u64(o->size_bytes - j->moved, LOCAL_CHUNK), err);
    if (r < 0)
        return r;
    hash_update(&j->hash, j->buf, j->filled);
    j->moved += j->filled;
    if (j->filled > 0 && j->moved < o->size_bytes)
        return 0;
    if (fstat(j->fd, &st) != 0)
        return unreadable(err, "cannot read its metadata");
    if (j->moved < o->size_bytes || !str_eq(o->etag, etag_of(&st, now, sizeof now)))
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
    if (a->digest_kind == HASH_NONE || a->alike_bytes != j->job.reply.object.size_bytes)
        local_end(j, 0);
    else
        hashed(j);
}

/* ---- listing ----------------------------------------------------------------------------------------------------- */

/* A token is "<id of the walk>:<last key>". Idle walks wait in a small table for the next page; an evicted one is
 * found again by its key. */
static struct local_walk *take_idle(struct local *l, struct str token)
{
    struct local_walk *w = NULL;
    uint64_t id;
    struct err ignored;
    if (str_hex_to_u64(str_sub(token, 0, 16), &id, &ignored) < 0)
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
    struct local_walk *w = p->token.len ? take_idle(l, p->token) : NULL;
    if (w) {
        *ret = w;
        return 0;
    }
    struct walk_options o = {.prefix = p->prefix,
                             .start_after = p->token.len ? str_from(p->token, 17) : p->start_after,
                             .end_before = p->end_before,
                             .folders = p->folders};
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
        if (!e.is_folder)
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
        sbuf_addf(&j->token, "%016" PRIx64 ":", put_idle(j->job.store->self, take(&w)));
        sbuf_add(&j->token, last->key);
    }
    j->job.objects = j->page.objects;
    j->job.object_count = j->page.count;
    j->job.next_token = sbuf_str(&j->token);
    return 0;
}

/* ---- dispatch ---------------------------------------------------------------------------------------------------- */

static void local_start(struct store_job *job)
{
    struct local_job *j = container_of(job, struct local_job, job);
    j->fd = j->parent = -1;
    object_page_init(&j->page);
    sbuf_init(&j->token, PATH_MAX + 32);
    sbuf_init(&j->skipped, PATH_MAX);
    hash_init(&j->hash);
    switch (job->op) {
    case JOB_GET:
        local_visit_paced(j, min_u64(job->args.len, LOCAL_CHUNK), visit_read, give);
        return;
    case JOB_HEAD:
        local_visit(j, visit_head, headed);
        return;
    case JOB_LIST:
        local_visit(j, visit_list, end_well);
        return;
    default:
        local_write_start(j);
    }
}

static void release_local_job(struct store_job *job)
{
    struct local_job *j = container_of(job, struct local_job, job);
    if (j->fd >= 0)
        close(j->fd);
    if (j->parent >= 0)
        close(j->parent);
    free(j->buf);
    object_page_done(&j->page);
    sbuf_done(&j->token);
    sbuf_done(&j->skipped);
    hash_done(&j->hash);
}

const struct store_backend backend_local = {
    .caps = {.lists_sorted = true,
             .lists_from_any_key = false, /* a directory is walked once, from its beginning */
             .lists_best_digest = true,
             .conditions = STORE_CONDITIONS_HONOURED,
             .upload_digest = HASH_CRC32C,
             .part_bytes_min = 1,
             .parts_max = 10000},
    .job_size = sizeof(struct local_job),
    .open = local_open,
    .close = local_close,
    .start = local_start,
    .stop = local_stop,
    .resume = local_resume,
    .release = release_local_job,
};
