/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h - Drives the run: flushes the journal, makes data durable, adjusts the window, writes the status, and ends
 * the run.
 * home: the driver's loop; functions say so where any thread may call them. */
#pragma once

#include "io/loop.h"
#include "io/pool.h"
#include <stdatomic.h>

#define TICK_NS (100 * NS_PER_MS) /* of the driver */

enum driver_state {
    DRIVER_RUNNING,
    DRIVER_STOPPING,  /* the lanes and the listing were ordered to stop */
    DRIVER_FINISHING, /* the last work runs on the pool */
    DRIVER_ENDED,
};

struct hydrate_driver {
    enum driver_state state;
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

void driver_init(struct hydrate_driver *d);
