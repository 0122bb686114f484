/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h - a loop with everything that jobs on it need: its own HTTP connections and its own way to the disk.
 * home: the loop. Jobs of one worker never need another's lock; a few workers make an engine. */
#pragma once

#include "io/loop.h"
#include "io/pool.h"
#include "io/uring.h"
#include "io/web.h"

enum {
    WORKERS_MAX = 32,
    /* Of large objects over TLS one fetches, checks and writes about 1 GB/s: so many fill the network of a node with
     * eight GPUs (200 Gbit/s). More would only take processors from those who make the data to read. */
    WORKERS_DEFAULT_MAX = 16,
};

struct worker {
    struct loop *loop;   /* owned */
    struct web *web;     /* owned */
    struct uring *uring; /* owned */
    struct pool *pool;   /* borrowed: one a process */
};

/* Made, not started: loop_start(w->loop) is the caller's, when its own fields are ready. */
must_check int worker_init(struct worker *w, unsigned number, struct pool *pool, const struct web_options *web,
                           bool allow_uring, struct err *err);
/* How many suit this process: one for each processor that it may run on and that its control group
 * gives it the time of, `more` beside them, and no more than WORKERS_DEFAULT_MAX. At least 1. */
unsigned worker_count(unsigned more);

void worker_done(struct worker *w); /* stops the loop; may run twice */
