/* SPDX-License-Identifier: Apache-2.0 */
/* http_time.h - parses the Retry-After and Date headers, and detects clock skew. Pure but for the clock. home: any. */
#pragma once

#include "util/err.h"
#include "util/str.h"

/* Parses Retry-After (seconds or a date), at most five minutes; 0: not set. */
uint64_t http_time_retry_after_ns(struct str header);

/* How far this machine's clock is ahead of the server's, by its Date; 0 if it has none. */
int64_t http_time_skew_ns(struct str date);

/* More than signatures and assertions bear? */
bool http_time_is_skew(int64_t skew_ns);

/* Sets CIS_CLOCK_SKEW: "this machine's clock is 12 min ahead of <whose>". Returns -ERR_DENIED. */
int http_time_skew_error(int64_t skew_ns, const char *whose, struct err *err);
