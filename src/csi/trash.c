/* SPDX-License-Identifier: Apache-2.0 */
#include "trash.h"
#include "util/clock.h"
#include "util/log.h"
#include <pthread.h>

struct trash {
    struct space *const *spaces; /* borrowed */
    size_t count;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t woken;
    bool wanted, stopping;
};

enum { RETRY_SECONDS = 60 };

static bool empty_all(struct trash *t)
{
    bool all = true;
    for (size_t i = 0; i < t->count; i++) {
        struct err err;
        if (space_empty_trash(t->spaces[i], &err) < 0) {
            log_err(LOG_WARN, "trash cannot be emptied", &err, "pool", space_name(t->spaces[i]), NULL);
            all = false;
        }
    }
    return all;
}

/* True: there is something to do. False: stop. */
static bool wait_for_work(struct trash *t, bool again)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += RETRY_SECONDS;
    pthread_mutex_lock(&t->lock);
    int e = 0;
    while (!t->wanted && !t->stopping && e != ETIMEDOUT)
        e = again ? pthread_cond_timedwait(&t->woken, &t->lock, &at) : pthread_cond_wait(&t->woken, &t->lock);
    t->wanted = false;
    bool go_on = !t->stopping;
    pthread_mutex_unlock(&t->lock);
    return go_on;
}

static void *trash_main(void *ctx)
{
    struct trash *t = ctx;
    bool all = true;
    while (wait_for_work(t, !all))
        all = empty_all(t);
    return NULL;
}

int trash_start(struct space *const *spaces, size_t count, struct trash **ret, struct err *err)
{
    struct trash *t = xcalloc(1, sizeof *t);
    *t = (struct trash){.spaces = spaces, .count = count, .wanted = true};
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->woken, NULL);
    int e = pthread_create(&t->thread, NULL, trash_main, t);
    if (e) {
        free(t);
        return err_sys(err, e, "cannot start the thread 'trash'");
    }
    pthread_setname_np(t->thread, "trash");
    *ret = t;
    return 0;
}

static void tell(struct trash *t, bool stop)
{
    pthread_mutex_lock(&t->lock);
    t->wanted = true;
    t->stopping |= stop;
    pthread_cond_signal(&t->woken);
    pthread_mutex_unlock(&t->lock);
}

void trash_wake(struct trash *t)
{
    tell(t, false);
}

void trash_stop(struct trash *t)
{
    if (!t)
        return;
    tell(t, true);
    pthread_join(t->thread, NULL);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->woken);
    free(t);
}
