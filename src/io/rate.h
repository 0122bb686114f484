/* SPDX-License-Identifier: Apache-2.0 */
/* rate.h - a cap on bytes (or requests) a second, shared by the jobs of many loops: a token bucket.
 * home: any thread; the bucket is one atomic word (the time at which it will be paid off). */
#pragma once

#include "util/macro.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct rate {
    _Atomic uint64_t bytes_per_second; /* 0: no cap; may change while jobs run */
    _Atomic uint64_t paid_until_ns;    /* 0: nothing was booked yet */
    uint64_t slack_ns; /* what is free in advance, and what may be caught up; 0: as rate_book() says. Frozen */
};

/* Books `bytes`; returns how long the caller should wait before it moves more (0: not at all). A burst of 100 ms is
 * free, so that small objects need not wait for one another. What was not moved in the second before, since the first
 * booking, may be caught up: a thread that got no core for half a second has not lost it. */
uint64_t rate_book(struct rate *r, uint64_t bytes, uint64_t now_ns);

/* How long until what was booked is paid, but for the burst? */
uint64_t rate_wait_ns(const struct rate *r, uint64_t now_ns);

/* What a cap has become that began with `first` and doubles in twenty minutes, evenly. */
uint64_t rate_ramp(uint64_t first, uint64_t elapsed_ns);

/* Is the cap what makes its jobs wait just now? */
bool rate_is_spent(const struct rate *r, uint64_t now_ns);
