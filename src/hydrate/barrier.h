/* SPDX-License-Identifier: Apache-2.0 */
/* barrier.h - Makes what was written durable, for many objects at once.
 * home: the coordinator's loop, unless a function says otherwise. */
#pragma once

#include "io/thread_pool.h"
#include <stdatomic.h>

struct hydrate;

struct hydrate_barrier {
    int fs_fd;                       /* owned: a file of the data's file system, opened before the first write */
    _Atomic uint64_t unsynced_bytes; /* since the last barrier began. Any thread */
    bool is_running;
    uint64_t ended_ns; /* the last one */
    struct work work;
    struct err err;
};

must_check int barrier_run(struct hydrate *h, struct err *err); /* any thread; blocks; one at a time */
void barrier_tick(struct hydrate *h);
