/* SPDX-License-Identifier: Apache-2.0 */
/* file://: the regular files below a directory as objects. */
#include "local.h"
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>

/* A directory, or a path that does not exist yet, is listed as a tree; any other path is one object in its parent. */
static void split_root(const struct uri *u, char **ret_root, struct str *ret_prefix)
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

static int local_open(struct store *s, const struct store_options *, const struct uri *u, struct err *)
{
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
    fd_close(&l->root);
    pthread_mutex_destroy(&l->lock);
    free(l->path);
    free(l);
}

static void local_resume(struct store_job *job)
{
    struct local_job *j = container_of(job, struct local_job, job);
    if (j->paused)
        local_wake(j);
}

/* A running visit cannot be cancelled: wait for its end. */
static void local_stop(struct store_job *job)
{
    struct local_job *j = container_of(job, struct local_job, job);
    if (j->waiting)
        loop_timer_cancel(job->worker->loop, &j->pause);
    if (j->waiting || j->paused)
        local_wake(j);
}

static void local_start(struct store_job *job)
{
    struct local_job *j = container_of(job, struct local_job, job);
    j->fd = j->parent = -1;
    object_page_init(&j->page);
    sbuf_init(&j->token, PATH_MAX + 32);
    sbuf_init(&j->skipped, PATH_MAX);
    hash_init(&j->hash);
    if (job->op <= STORE_OP_LIST)
        local_read_start(j);
    else
        local_write_start(j);
}

static void release_local_job(struct store_job *job)
{
    struct local_job *j = container_of(job, struct local_job, job);
    fd_close(&j->fd);
    fd_close(&j->parent);
    free(j->buf);
    object_page_done(&j->page);
    sbuf_done(&j->token);
    sbuf_done(&j->skipped);
    hash_done(&j->hash);
}

const struct store_backend backend_local = {
    .caps = {.lists_sorted = true,
             .lists_from_any_key = false, /* a directory is walked once, from its start */
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
