/* SPDX-License-Identifier: Apache-2.0 */
/* hedge.h - how long a GET waits for its first byte before it is asked for a second time, and whether that may be.
 * home: any thread; a struct of atomics.
 *
 * It waits for the 99th percentile of the first bytes so far: what takes longer has mostly met a server that is ill.
 * The second requests are paid from a purse that every GET fills by a hundredth of one, and from which retries take
 * too: a store in trouble is not asked for more. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { HEDGE_BUCKETS = 80 }; /* four an octave, from 65 us to 275 s */

struct hedge {
    _Atomic uint32_t counts[HEDGE_BUCKETS]; /* first bytes; halved now and then, so that they follow */
    _Atomic uint32_t samples;
    _Atomic uint64_t wait_ns; /* as of the last look at the counts; 0: too few are known */
    _Atomic uint64_t mib_ns;  /* what a MiB of a long body takes, a moving mean; 0: not known */
    _Atomic int32_t purse;    /* in hundredths of a request */
    _Atomic uint64_t quiet_until_ns;
};

void hedge_sent(struct hedge *h);                        /* a GET, not a second one */
void hedge_answered(struct hedge *h, uint64_t first_ns); /* its first byte came, or had not come after so long */
void hedge_retried(struct hedge *h);                     /* any request */
void hedge_slow_down(struct hedge *h, uint64_t now_ns);  /* the store asked for fewer: none for 10 s */
void hedge_body(struct hedge *h, uint64_t bytes, uint64_t took_ns); /* a body came, whole */
/* Would the rest of a body take far longer, at its own rate, than all of it does mostly? */
bool hedge_is_slow(const struct hedge *h, uint64_t bytes, uint64_t received, uint64_t took_ns);
uint64_t hedge_wait_ns(const struct hedge *h);                         /* 0: never */
bool hedge_take(struct hedge *h, uint64_t now_ns, uint64_t waited_ns); /* one out of the purse, if there is one */
