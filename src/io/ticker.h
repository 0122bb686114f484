/* SPDX-License-Identifier: Apache-2.0 */
/* ticker.h - runs one periodic task on a thread of its own. The task may block.
 * home: any thread but its own starts, wakes and stops it. */
#pragma once

#include "util/err.h"

struct ticker;

#define TICKER_NEVER UINT64_MAX /* until it is woken */

/* Calls `tick` at once, and again after the time in ns that it returned. `name` is the thread's, 15 bytes at most. */
must_check int ticker_start(const char *name, uint64_t (*tick)(void *ctx), void *ctx, struct ticker **ret,
                            struct err *err);

/* The next tick is due now, also if one is running. */
void ticker_wake(struct ticker *t);

/* Waits for the running tick, which is not cut short. NULL is fine. */
void ticker_stop(struct ticker *own_t);
