/* SPDX-License-Identifier: Apache-2.0 */
#include "notify.h"
#include "util/str.h"
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

enum { WATCHES_MAX = 4096, PATH_BYTES_MAX = 4096, EVENT_BYTES = 4096 };

struct watched {
    int id;     /* inotify's */
    char *name; /* owned */
};

struct notify {
    struct loop *loop; /* borrowed */
    void (*moved)(void *ctx, const char *name);
    void *ctx;
    struct watch watch;    /* its fd is owned */
    pthread_mutex_t lock;  /* guards what follows */
    struct watched *items; /* owned; few: those whose work goes on */
    size_t count;
};

/* ---- under the lock ---------------------------------------------------------------------------------------------- */

static struct watched *find(struct notify *n, int id)
{
    for (size_t i = 0; i < n->count; i++)
        if (n->items[i].id == id)
            return &n->items[i];
    return NULL;
}

static void drop(struct notify *n, struct watched *w)
{
    free(w->name);
    *w = n->items[--n->count];
}

static void watch_folder(struct notify *n, const char *name, const char *path)
{
    if (n->count == WATCHES_MAX)
        return;
    int id = inotify_add_watch(n->watch.fd, path, IN_MOVED_TO | IN_ONLYDIR);
    if (id < 0 || find(n, id))
        return;
    n->items = xrealloc(n->items, n->count + 1, sizeof *n->items);
    n->items[n->count++] = (struct watched){.id = id, .name = str_dup(str_of(name))};
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void handle(struct notify *n, const struct inotify_event *e)
{
    pthread_mutex_lock(&n->lock);
    struct watched *w = find(n, e->wd);
    auto_mem char *name = w && !(e->mask & IN_IGNORED) ? str_dup(str_of(w->name)) : NULL;
    if (w && (e->mask & IN_IGNORED)) /* the folder is gone */
        drop(n, w);
    pthread_mutex_unlock(&n->lock);
    if (name)
        n->moved(n->ctx, name);
}

static void ready(struct watch *w, uint32_t events)
{
    struct notify *n = container_of(w, struct notify, watch);
    _Alignas(struct inotify_event) char buffer[EVENT_BYTES];
    (void)events;
    for (ssize_t len; (len = read(w->fd, buffer, sizeof buffer)) > 0;)
        for (const char *at = buffer; at < buffer + len;) {
            const struct inotify_event *e = (const struct inotify_event *)at;
            handle(n, e);
            at += sizeof *e + e->len;
        }
}

/* ---- from outside ------------------------------------------------------------------------------------------------ */

int notify_new(struct loop *l, void (*moved)(void *ctx, const char *name), void *ctx, struct notify **ret,
               struct err *err)
{
    struct notify *n = xcalloc(1, sizeof *n);
    *n = (struct notify){.loop = l, .moved = moved, .ctx = ctx, .watch = {.ready = ready, .events = EPOLLIN}};
    pthread_mutex_init(&n->lock, NULL);
    n->watch.fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    int r = n->watch.fd < 0 ? err_sys(err, errno, "cannot watch the volumes' folders") : loop_watch(l, &n->watch, err);
    if (r < 0) {
        notify_free(n);
        return r;
    }
    *ret = n;
    return 0;
}

void notify_free(struct notify *own_n)
{
    if (!own_n)
        return;
    loop_unwatch(own_n->loop, &own_n->watch);
    if (own_n->watch.fd >= 0)
        close(own_n->watch.fd);
    for (size_t i = 0; i < own_n->count; i++)
        free(own_n->items[i].name);
    free(own_n->items);
    pthread_mutex_destroy(&own_n->lock);
    free(own_n);
}

void notify_add(struct notify *n, const char *name, const char *path)
{
    char export[PATH_BYTES_MAX];
    bool fits = snprintf(export, sizeof export, "%s/export", path) < PATH_BYTES_MAX;
    pthread_mutex_lock(&n->lock);
    watch_folder(n, name, path);
    if (fits) /* not there before the first export */
        watch_folder(n, name, export);
    pthread_mutex_unlock(&n->lock);
}

void notify_remove(struct notify *n, const char *name)
{
    pthread_mutex_lock(&n->lock);
    for (size_t i = n->count; i-- > 0;)
        if (strcmp(n->items[i].name, name) == 0) {
            (void)inotify_rm_watch(n->watch.fd, n->items[i].id); /* gone already is fine */
            drop(n, &n->items[i]);
        }
    pthread_mutex_unlock(&n->lock);
}
