/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - monotonic now, deadlines, back-off with jitter, RFC 3339. home: any. */
#pragma once

#include "util/str.h"
#include <pthread.h>
#include <time.h>

#define NS_PER_SECOND UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)

uint64_t clock_now_ns(void);  /* CLOCK_MONOTONIC; never goes back; not comparable between machines */
uint64_t clock_boot_ns(void); /* the same, but it also runs while the machine is suspended */
/* CLOCK_REALTIME since 1970: for people, signatures, mtimes, and times that outlive the process. */
int64_t clock_wall_ns(void);

/* Converts between ns and struct timespec, also before 1970. A file's time may be of any year: time_from_spec() limits
 * it to 146 years from 1970, half of the range of 64 bits, so that the difference of two times cannot overflow. */
struct timespec time_to_spec(int64_t ns);
int64_t time_from_spec(struct timespec t);

/* Sleeps; a signal does not shorten it. */
void clock_sleep(uint64_t ns);

/* Waits on the condition until it is woken (true), or clock_now_ns() reaches `until_ns` (false). */
bool clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns);

/* Wait before attempt `attempt` (1 is the first retry): full jitter in [0, min(cap, base * 2^(attempt-1))].
 * Source: "Exponential Backoff And Jitter", AWS Architecture Blog. */
uint64_t clock_backoff_ns(unsigned attempt, uint64_t base_ns, uint64_t cap_ns);
/* The same, but half of the wait is fixed: never nearly zero. */
uint64_t clock_backoff_half_ns(unsigned attempt, uint64_t base_ns, uint64_t cap_ns);
/* Without jitter: min(cap, base * 2^doublings). */
uint64_t clock_doubled_ns(unsigned doublings, uint64_t base_ns, uint64_t cap_ns);

/* For jitter and sampling: an attacker may guess it. Thread-safe. */
uint64_t clock_random(void);

/* "2026-11-21T09:30:00.123Z", UTC, milliseconds. buf of TIME_TEXT_MAX; returns buf. */
enum { TIME_TEXT_MAX = 32 };
char *time_text(int64_t wall_ns, char *buf);

/* RFC 3339 with any fraction and offset (2026-11-21T10:30:00+01:00, ...Z); ERR_INVALID otherwise, ERR_RANGE beyond 146
 * years from 1970: the years before 1824 and after 2115. */
must_check int time_parse(struct str s, int64_t *ret_wall_ns, struct err *err);

/* An HTTP date (Sat, 21 Nov 2026 09:30:00 GMT), as in Date, Last-Modified and Retry-After; else false. The two obsolete
 * forms of RFC 9110, which no store sends, are not read. */
must_check bool time_parse_http(struct str s, int64_t *ret_wall_ns);

/* "1.2 s", "350 ms", "2 h 05 min": for people. buf of TIME_TEXT_MAX; returns buf. */
char *duration_text(uint64_t ns, char *buf);
