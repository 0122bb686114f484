/* SPDX-License-Identifier: Apache-2.0 */
#include "io/ticker.h"
#include "util/clock.h"
#include "util/macro.h"
#include "util/thread.h"
#include <pthread.h>
#include <stdlib.h>

struct ticker {
    uint64_t (*tick)(void *ctx);
    void *ctx;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t woken;
    bool is_due, stopping;
};

/* False: stop. */
static bool wait_for_tick(struct ticker *t, uint64_t wait_ns)
{
    uint64_t now_ns = clock_now_ns(), end_ns = wait_ns < UINT64_MAX - now_ns ? now_ns + wait_ns : UINT64_MAX;
    auto_lock(&t->lock);
    while (!t->stopping && !t->is_due && clock_cond_wait(&t->woken, &t->lock, end_ns))
        ;
    t->is_due = false;
    return !t->stopping;
}

static void *run(void *ctx)
{
    struct ticker *t = ctx;
    while (wait_for_tick(t, t->tick(t->ctx)))
        ;
    return NULL;
}

static void ticker_free(struct ticker *own_t)
{
    pthread_cond_destroy(&own_t->woken);
    pthread_mutex_destroy(&own_t->lock);
    free(own_t);
}

int ticker_start(const char *name, uint64_t (*tick)(void *ctx), void *ctx, struct ticker **ret, struct err *err)
{
    struct ticker *t = xcalloc(1, sizeof *t);
    *t = (struct ticker){.tick = tick, .ctx = ctx};
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->woken, NULL);
    int r = thread_start_named(&t->thread, name, run, t, err);
    if (r < 0)
        ticker_free(t);
    else
        *ret = t;
    return r;
}

static void signal_thread(struct ticker *t, bool stop)
{
    auto_lock(&t->lock);
    t->is_due = true;
    t->stopping |= stop;
    pthread_cond_signal(&t->woken);
}

void ticker_wake(struct ticker *t)
{
    signal_thread(t, false);
}

void ticker_stop(struct ticker *own_t)
{
    if (!own_t)
        return;
    signal_thread(own_t, true);
    pthread_join(own_t->thread, NULL);
    ticker_free(own_t);
}
