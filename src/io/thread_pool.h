/* SPDX-License-Identifier: Apache-2.0 */
/* thread_pool.h - runs blocking calls on threads of its own. Work and its completion travel by mail.
 * home: any thread. Work of a loop runs on "pool/N"; its completion runs on that loop. */
#pragma once

#include "io/loop.h"

struct thread_pool;

struct work {
    struct mail home_mail;        /* the pool's */
    struct loop *home;            /* the pool's */
    void (*run)(struct work *w);  /* on a pool thread; touches only fields that the work owns */
    void (*done)(struct work *w); /* on the home loop; may free the work */
};

/* Threads start as they are needed, up to `threads_max`. The number of `struct work` limits the queue. */
must_check int thread_pool_new(unsigned threads_max, struct thread_pool **ret, struct err *err);
void thread_pool_free(
    struct thread_pool *p); /* finishes all submitted work; its loops must still exist. NULL is fine */
DEFINE_AUTO(thread_pool, struct thread_pool, thread_pool_free)
#define auto_thread_pool auto_with(auto_clean_thread_pool) struct thread_pool *

/* Submits the work. Any thread; the work and the loop must live until `done`. */
void thread_pool_submit(struct thread_pool *p, struct loop *home, struct work *w);
