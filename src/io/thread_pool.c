/* SPDX-License-Identifier: Apache-2.0 */
#include "io/thread_pool.h"
#include "util/str.h"
#include "util/thread.h"
#include <assert.h>
#include <pthread.h>
#include <stdio.h>

struct thread_pool {
    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t more;
    struct list queue; /* works that wait, by their mails */
    unsigned waiting;  /* works that no thread has taken */
    unsigned idle;     /* threads that wait */
    unsigned threads;
    unsigned threads_max;
    bool closing;
    pthread_t ids[];
};

enum { THREADS_MAX = 1024 };

static struct work *work_of(struct mail *m)
{
    return container_of(m, struct work, home_mail);
}

static void deliver_completion(struct mail *m)
{
    struct work *w = work_of(m);
    w->done(w);
}

/* The next work, or NULL when the pool closes and none is left. */
static struct work *next_work(struct thread_pool *p)
{
    auto_lock(&p->lock);
    while (list_is_empty(&p->queue) && !p->closing) {
        p->idle++;
        pthread_cond_wait(&p->more, &p->lock);
        p->idle--;
    }
    struct mail *m = list_pop(&p->queue, struct mail, node);
    p->waiting -= m != NULL;
    return m ? work_of(m) : NULL;
}

static void *run(void *arg)
{
    struct thread_pool *p = arg;
    for (struct work *w; (w = next_work(p)) != NULL;) {
        struct loop *home = w->home;
        w->run(w);
        w->home_mail.deliver = deliver_completion;
        loop_post(home, &w->home_mail);
    }
    return NULL;
}

/* Under the lock, except for the first thread. */
static int grow(struct thread_pool *p, struct err *err)
{
    char name[16];
    snprintf(name, sizeof name, "pool/%u", p->threads);
    int r = thread_start_named(&p->ids[p->threads], name, run, p, err);
    p->threads += r == 0;
    return r;
}

int thread_pool_new(unsigned threads_max, struct thread_pool **ret, struct err *err)
{
    if (threads_max == 0 || threads_max > THREADS_MAX)
        return err_set(err, ERR_INVALID, "a pool of %u threads is not between 1 and %d", threads_max, THREADS_MAX);
    auto_thread_pool p = xcalloc(1, sizeof *p + threads_max * sizeof p->ids[0]);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, NULL);
    p->threads_max = threads_max;
    /* With one thread running, the pool works even if the system refuses later threads. */
    int r = grow(p, err);
    if (r < 0)
        return r;
    *ret = take(&p);
    return 0;
}

void thread_pool_submit(struct thread_pool *p, struct loop *home, struct work *w)
{
    w->home = home;
    auto_lock(&p->lock);
    assert(!p->closing);
    list_add(&p->queue, &w->home_mail.node);
    p->waiting++;
    if (p->waiting > p->idle && p->threads < p->threads_max)
        (void)grow(p, ERR_IGNORED);
    pthread_cond_signal(&p->more);
}

void thread_pool_free(struct thread_pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_cond_broadcast(&p->more);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->threads; i++)
        pthread_join(p->ids[i], NULL);
    pthread_cond_destroy(&p->more);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
