/* SPDX-License-Identifier: Apache-2.0 */
/* thread.h - threads beside main's. home: any thread. */
#pragma once

#include <pthread.h>
#include <signal.h>

/* pthread_create() of a thread to which no signal goes: they are main's, which reads them from a descriptor. SIGBUS is
 * its own: the kernel sends it for a page of a mapped file that cannot be read, and ends the process at once where it
 * is blocked. Zero, or the number of the error. */
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
