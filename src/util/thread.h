/* SPDX-License-Identifier: Apache-2.0 */
/* thread.h - starts threads, and holds locks until the end of a scope. home: any thread. */
#pragma once

#include "util/err.h"
#include <pthread.h>
#include <signal.h>

/* Creates a thread that blocks all signals but SIGBUS: main reads them from a descriptor. The kernel sends SIGBUS for
 * an unreadable page of a mapped file, and ends the process at once if it is blocked. Returns zero or an errno. */
static inline int thread_start(pthread_t *ret, void *(*run)(void *), void *ctx)
{
    sigset_t signals, before;
    sigfillset(&signals);
    sigdelset(&signals, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &signals, &before);
    int r = pthread_create(ret, NULL, run, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r;
}

/* The same for a thread with a name of at most 15 bytes, which it sets before `run`: logs show it. */
must_check int thread_start_named(pthread_t *ret, const char *name, void *(*run)(void *), void *ctx, struct err *err);

/* auto_lock(&x->lock); holds a mutex until the end of the scope. */
static inline pthread_mutex_t *lock_mutex(pthread_mutex_t *m)
{
    pthread_mutex_lock(m);
    return m;
}

static inline void auto_clean_lock(pthread_mutex_t **m)
{
    pthread_mutex_unlock(*m);
}
#define auto_lock(mutex) __attribute__((cleanup(auto_clean_lock), unused)) pthread_mutex_t *locked_ = lock_mutex(mutex)
