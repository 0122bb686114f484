/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h - a loop with HTTP connections and disk I/O of its own, so that its jobs need no lock. home: the loop. */
#pragma once

#include "io/loop.h"
#include "io/thread_pool.h"
#include "io/uring.h"
#include "io/web.h"

enum {
    WORKERS_MAX = 32,
    /* One worker fetches, checks and writes about 1 GB/s of large objects over TLS. 16 fill the network of a node with
     * eight GPUs (200 Gbit/s). More would take processors from the training. */
    WORKERS_DEFAULT_MAX = 16,
};

struct worker {
    struct loop *loop;           /* owned */
    struct web *web;             /* owned */
    struct uring *uring;         /* owned */
    struct thread_pool *threads; /* borrowed: one a process */
};

/* Made, not started: loop_start(w->loop) is the caller's, when its own fields are ready. */
must_check int worker_init(struct worker *w, unsigned number, struct thread_pool *pool, const struct web_options *web,
                           bool allow_uring, struct err *err);
/* A default for this process: one for each processor that its affinity and its control group allow, plus `more`, at
 * most WORKERS_DEFAULT_MAX. At least 1. */
unsigned worker_count(unsigned more);

void worker_done(struct worker *w); /* stops the loop; may run twice */
