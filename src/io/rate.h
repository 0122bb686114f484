/* SPDX-License-Identifier: Apache-2.0 */
/* rate.h - a cap on bytes (or requests) a second, shared by the jobs of many loops: a token bucket.
 * home: any thread; the bucket is one atomic word (the time at which it will be paid off). */
#pragma once

#include "util/macro.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct rate {
    _Atomic uint64_t units_per_second;  /* 0: no cap; may change while jobs run */
    _Atomic uint64_t reserved_until_ns; /* 0: nothing was booked yet */
    uint64_t slack_ns; /* the burst, and unused time that may be used later; 0: as in rate_reserve(). Frozen */
};

/* At first, and after a rest, `burst` units may be taken at once. Neither number may be 0. */
void rate_init(struct rate *r, uint64_t per_second, uint64_t burst);

/* Reserves `bytes`; returns how long the caller should wait before it moves more (0: not at all). A burst of 100 ms is
 * free, so that small objects need not wait for one another. Unused rate of the last second may be used later, so a
 * thread that got no core for half a second loses nothing. */
uint64_t rate_reserve(struct rate *r, uint64_t bytes, uint64_t now_ns);

/* Reserves `bytes`, but only if the caller need not wait for them. Else it returns how long until it may try again. Of
 * several callers that wait for the same time, one gets it. */
uint64_t rate_take(struct rate *r, uint64_t bytes, uint64_t now_ns);
void rate_give_back(struct rate *r, uint64_t bytes); /* they were taken, and are not used */

/* Changes the cap. Units that are reserved and not paid off are dropped. A lower cap begins without a burst; at a
 * higher one, unused time stays usable. */
void rate_change(struct rate *r, uint64_t units_per_second, uint64_t now_ns);

/* How long until the reserved bytes are within the rate, except the burst? */
uint64_t rate_wait_ns(const struct rate *r, uint64_t now_ns);

/* The cap after `elapsed_ns`: it begins with `first` and doubles every twenty minutes, evenly. */
uint64_t rate_ramp(uint64_t first, uint64_t elapsed_ns);

/* Does the cap delay its jobs now? */
bool rate_is_exhausted(const struct rate *r, uint64_t now_ns);
