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
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t woken;
    bool is_wanted, stopping;
};

/* False: stop. */
static bool rest(struct ticker *t, uint64_t rest_ns)
{
    uint64_t now_ns = clock_now_ns(), end_ns = rest_ns < UINT64_MAX - now_ns ? now_ns + rest_ns : UINT64_MAX;
    pthread_mutex_lock(&t->lock);
    while (!t->stopping && !t->is_wanted && clock_cond_wait(&t->woken, &t->lock, end_ns))
        ;
    t->is_wanted = false;
    bool goes_on = !t->stopping;
    pthread_mutex_unlock(&t->lock);
    return goes_on;
}

static void *run(void *ctx)
{
    struct ticker *t = ctx;
    while (rest(t, t->tick(t->ctx)))
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
    int e = thread_start(&t->thread, run, t);
    if (e) {
        ticker_free(t);
        return err_sys(err, e, "cannot start the thread '%s'", name);
    }
    pthread_setname_np(t->thread, name);
    *ret = t;
    return 0;
}

static void tell(struct ticker *t, bool stop)
{
    pthread_mutex_lock(&t->lock);
    t->is_wanted = true;
    t->stopping |= stop;
    pthread_cond_signal(&t->woken);
    pthread_mutex_unlock(&t->lock);
}

void ticker_wake(struct ticker *t)
{
    tell(t, false);
}

void ticker_stop(struct ticker *own_t)
{
    if (!own_t)
        return;
    tell(own_t, true);
    pthread_join(own_t->thread, NULL);
    ticker_free(own_t);
}
