/* SPDX-License-Identifier: Apache-2.0 */
/* coordinator.h - Coordinates the run: flushes the journal, makes data durable, adjusts the window, writes the status,
 * and ends the run.
 * home: the coordinator's loop; functions say so where any thread may call them. */
#pragma once

#include "io/loop.h"
#include "io/thread_pool.h"
#include <stdatomic.h>

#define TICK_NS (100 * NS_PER_MS) /* of the coordinator */

enum coordinator_state {
    COORDINATOR_RUNNING,
    COORDINATOR_STOPPING,  /* the lanes and the listing were ordered to stop */
    COORDINATOR_FINISHING, /* the last work runs on the pool */
    COORDINATOR_ENDED,
};

struct hydrate_coordinator {
    enum coordinator_state state;
    struct loop *loop; /* owned */
    struct timer tick;
    struct timer climb; /* of the window */
    unsigned ticks;
    struct mail begin;
    struct mail check;
    _Atomic bool is_check_posted;
    struct work finish_work;
    struct err finish_err;
};

void coordinator_init(struct hydrate_coordinator *d);
