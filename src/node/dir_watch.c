/* SPDX-License-Identifier: Apache-2.0 */
#include "dir_watch.h"
#include "util/str.h"
#include "util/thread.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

enum { WATCHES_MAX = 4096, PATH_BYTES_MAX = 4096, EVENT_BYTES = 4096 };

struct dir_watched {
    int id;     /* inotify's */
    char *name; /* owned */
};

struct dir_watch {
    struct loop *loop; /* borrowed */
    void (*moved)(void *ctx, const char *name);
    void *ctx;
    struct watch watch;        /* its fd is owned */
    pthread_mutex_t lock;      /* guards the fields below */
    struct dir_watched *items; /* owned; few: only active volumes */
    size_t count;
};

/* ---- under the lock ---------------------------------------------------------------------------------------------- */

static struct dir_watched *find_watch(struct dir_watch *n, int id)
{
    for (size_t i = 0; i < n->count; i++)
        if (n->items[i].id == id)
            return &n->items[i];
    return NULL;
}

static void drop_watch(struct dir_watch *n, struct dir_watched *w)
{
    free(w->name);
    *w = n->items[--n->count];
}

static void watch_directory(struct dir_watch *n, const char *name, const char *path)
{
    if (n->count == WATCHES_MAX)
        return;
    int id = inotify_add_watch(n->watch.fd, path, IN_MOVED_TO | IN_ONLYDIR);
    if (id < 0 || find_watch(n, id))
        return;
    n->items = xrealloc(n->items, n->count + 1, sizeof *n->items);
    n->items[n->count++] = (struct dir_watched){.id = id, .name = str_dup(str_of(name))};
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void handle(struct dir_watch *n, const struct inotify_event *e)
{
    auto_mem char *name = NULL;
    {
        auto_lock(&n->lock);
        struct dir_watched *w = find_watch(n, e->wd);
        if (w && !(e->mask & IN_IGNORED))
            name = str_dup(str_of(w->name));
        else if (w) /* the directory was removed */
            drop_watch(n, w);
    }
    if (name)
        n->moved(n->ctx, name);
}

static void ready(struct watch *w, uint32_t)
{
    struct dir_watch *n = container_of(w, struct dir_watch, watch);
    _Alignas(struct inotify_event) char buffer[EVENT_BYTES];
    for (ssize_t len; (len = read(w->fd, buffer, sizeof buffer)) > 0;)
        for (const char *at = buffer; at < buffer + len;) {
            const struct inotify_event *e = (const struct inotify_event *)at;
            handle(n, e);
            at += sizeof *e + e->len;
        }
}

/* ---- public ------------------------------------------------------------------------------------------------------ */

int dir_watch_new(struct loop *l, void (*moved)(void *ctx, const char *name), void *ctx, struct dir_watch **ret,
                  struct err *err)
{
    struct dir_watch *n = xcalloc(1, sizeof *n);
    *n = (struct dir_watch){.loop = l, .moved = moved, .ctx = ctx, .watch = {.ready = ready, .events = EPOLLIN}};
    pthread_mutex_init(&n->lock, NULL);
    n->watch.fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    int r = n->watch.fd < 0 ? err_sys(err, errno, "cannot watch the directories of volumes")
                            : loop_watch(l, &n->watch, err);
    if (r < 0) {
        dir_watch_free(n);
        return r;
    }
    *ret = n;
    return 0;
}

void dir_watch_free(struct dir_watch *own_n)
{
    if (!own_n)
        return;
    loop_unwatch(own_n->loop, &own_n->watch);
    fd_close(&own_n->watch.fd);
    for (size_t i = 0; i < own_n->count; i++)
        free(own_n->items[i].name);
    free(own_n->items);
    pthread_mutex_destroy(&own_n->lock);
    free(own_n);
}

void dir_watch_add(struct dir_watch *n, const char *name, const char *path)
{
    char export[PATH_BYTES_MAX];
    bool fits = snprintf(export, sizeof export, "%s/export", path) < PATH_BYTES_MAX;
    auto_lock(&n->lock);
    watch_directory(n, name, path);
    if (fits) /* does not exist before the first export */
        watch_directory(n, name, export);
}

void dir_watch_remove(struct dir_watch *n, const char *name)
{
    auto_lock(&n->lock);
    for (size_t i = n->count; i-- > 0;)
        if (strcmp(n->items[i].name, name) == 0) {
            (void)inotify_rm_watch(n->watch.fd, n->items[i].id); /* removed already is fine */
            drop_watch(n, &n->items[i]);
        }
}
