/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h - a loop with everything that jobs on it need: its own HTTP connections and its own way to the disk.
 * home: the loop. Jobs of one worker never need another's lock; a few workers make an engine. */
#pragma once

#include "io/loop.h"
#include "io/pool.h"
#include "io/uring.h"
#include "io/web.h"

struct worker {
    struct loop *loop;   /* owned */
    struct web *web;     /* owned */
    struct uring *uring; /* owned */
    struct pool *pool;   /* borrowed: one a process */
};

/* Made, not started: loop_start(w->loop) is the caller's, when its own fields are ready. */
must_check int worker_init(struct worker *w, unsigned number, struct pool *pool, const struct web_options *web,
                           bool allow_uring, struct err *err);
void worker_done(struct worker *w); /* stops the loop; may run twice */
