/* SPDX-License-Identifier: Apache-2.0 */
/* ticker.h - a thread that does one thing again and again until it is told to stop: what looks after something, and
 * may block while it does.
 * home: any thread starts, wakes and stops it, but not its own. */
#pragma once

#include "util/err.h"

struct ticker;

#define TICKER_NEVER UINT64_MAX /* until it is woken */

/* Calls `tick` at once and then whenever the time that it last answered (in ns) has passed. `name` is the thread's, 15
 * bytes at most. */
must_check int ticker_start(const char *name, uint64_t (*tick)(void *ctx), void *ctx, struct ticker **ret,
                            struct err *err);

/* The next tick is due now; one that is under way is followed by another. */
void ticker_wake(struct ticker *t);

/* Behind the tick that is under way, which is not cut short. NULL is fine. */
void ticker_stop(struct ticker *own_t);
