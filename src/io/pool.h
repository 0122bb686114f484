/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h - threads for calls that block; work leaves and comes home by mail.
 * home: any thread. Work that a loop sends is done on "pool/N" and then delivered on that loop. */
#pragma once

#include "io/loop.h"

struct pool;

struct work {
    struct mail home_mail;        /* the pool's */
    struct loop *home;            /* the pool's */
    void (*run)(struct work *w);  /* on a pool thread; touches only what the work owns */
    void (*done)(struct work *w); /* on the home loop; may free the work */
};

/* Threads start as they are needed, up to `threads_max`. The queue is bounded by the owners, as mail is. */
must_check int pool_new(unsigned threads_max, struct pool **ret, struct err *err);
void pool_free(struct pool *p); /* finishes what was submitted, while its homes still live; NULL is fine */
DEFINE_AUTO(pool, struct pool, pool_free)
#define auto_pool auto_with(auto_clean_pool) struct pool *

/* Any thread; the work and the loop must live until `done`. */
void pool_submit(struct pool *p, struct loop *home, struct work *w);
