/* SPDX-License-Identifier: Apache-2.0 */
/* timing.h - what an answer's headers say of time. Pure but for the clock. home: any. */
#pragma once

#include "util/err.h"
#include "util/str.h"

/* Retry-After: seconds or a date. A server that asks
 * for an hour is believed up to five minutes; 0 if it says nothing. */
uint64_t timing_retry_after_ns(struct str header);

/* How far this machine's clock is ahead of the server's, by its Date; 0 if it has none. */
int64_t timing_skew_ns(struct str date);

/* More than signatures and assertions bear? */
bool timing_is_skew(int64_t skew_ns);

/* Sets CIS1901: "this machine's clock is 12 min ahead of <whose>". Returns -ERR_DENIED. */
int timing_skewed(int64_t skew_ns, const char *whose, struct err *err);
