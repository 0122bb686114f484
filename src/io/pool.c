/* SPDX-License-Identifier: Apache-2.0 */
#include "io/pool.h"
#include "util/str.h"
#include "util/thread.h"
#include <assert.h>
#include <pthread.h>
#include <stdio.h>

struct pool {
    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t more;
    struct mail *first; /* waiting works, by their mails */
    struct mail **last;
    unsigned waiting; /* works that no thread has taken */
    unsigned idle;    /* threads that wait */
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

static void come_home(struct mail *m)
{
    struct work *w = work_of(m);
    w->done(w);
}

/* The next work, or NULL when the pool closes and none is left. */
static struct work *pool_next(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    while (!p->first && !p->closing) {
        p->idle++;
        pthread_cond_wait(&p->more, &p->lock);
        p->idle--;
    }
    struct mail *m = p->first;
    if (m) {
        p->first = m->next;
        if (!p->first)
            p->last = &p->first;
        p->waiting--;
    }
    pthread_mutex_unlock(&p->lock);
    return m ? work_of(m) : NULL;
}

static void *pool_run(void *arg)
{
    struct pool *p = arg;
    for (struct work *w; (w = pool_next(p)) != NULL;) {
        struct loop *home = w->home;
        w->run(w);
        w->home_mail.deliver = come_home;
        loop_post(home, &w->home_mail);
    }
    return NULL;
}

/* Under the lock, but for the first. Returns 0 or an errno. */
static int pool_grow(struct pool *p)
{
    char name[16];
    int r = thread_start(&p->ids[p->threads], pool_run, p);
    if (r != 0)
        return r;
    snprintf(name, sizeof name, "pool/%u", p->threads);
    pthread_setname_np(p->ids[p->threads], name);
    p->threads++;
    return 0;
}

int pool_new(unsigned threads_max, struct pool **ret, struct err *err)
{
    if (threads_max == 0 || threads_max > THREADS_MAX)
        return err_set(err, ERR_INVALID, "a pool of %u threads is not between 1 and %d", threads_max, THREADS_MAX);
    auto_pool p = xcalloc(1, sizeof *p + threads_max * sizeof p->ids[0]);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, NULL);
    p->last = &p->first;
    p->threads_max = threads_max;
    /* The first thread now: a later one that the system will not give can then be done without. */
    int r = pool_grow(p);
    if (r != 0)
        return err_sys(err, r, "cannot start thread 'pool/0'");
    *ret = take(&p);
    return 0;
}

void pool_submit(struct pool *p, struct loop *home, struct work *w)
{
    w->home = home;
    w->home_mail.next = NULL;
    pthread_mutex_lock(&p->lock);
    assert(!p->closing);
    *p->last = &w->home_mail;
    p->last = &w->home_mail.next;
    p->waiting++;
    if (p->waiting > p->idle && p->threads < p->threads_max)
        (void)pool_grow(p);
    pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->lock);
}

void pool_free(struct pool *p)
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
