/* SPDX-License-Identifier: Apache-2.0 */
/* hedge.h - decides when a read is sent a second time, and when a slow body is started over. home: any thread; a struct
 * of atomics. A GET waits for the 99th percentile of the first bytes so far. A HEAD or a page of a listing waits for
 * that of whole answers. The hedge budget begins with five requests, and each read adds a hundredth of one. Second
 * requests and retries take from it. A failing store gets no extra load. Bodies that are started over have a budget of
 * their own: the store serves no more requests at once. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { HEDGE_BUCKETS = 80 }; /* four an octave, from 65 us to 275 s */

enum hedge_kind { HEDGE_GET, HEDGE_HEAD, HEDGE_LIST, HEDGE_KINDS };

struct hedge_latency {
    _Atomic uint32_t counts[HEDGE_BUCKETS]; /* first bytes of GETs, else whole replies; halved at intervals */
    _Atomic uint32_t samples;
    _Atomic uint64_t wait_ns; /* computed from the counts at intervals; 0: too few samples */
};

struct hedge {
    struct hedge_latency of[HEDGE_KINDS];
    /* Moving means; 0: not known. */
    _Atomic uint64_t short_body_ns; /* a body shorter than a MiB */
    _Atomic uint64_t mib_ns;        /* a MiB of a longer one */
    _Atomic int32_t budget;         /* of second requests, in hundredths of one */
    _Atomic int32_t restarts;       /* of bodies that are started over, likewise */
    _Atomic uint64_t quiet_until_ns;
};

void hedge_init(struct hedge *h);
void hedge_sent(struct hedge *h); /* a read, not a second one */
/* Records the time to the first byte of a GET, or that it took longer. Records the time of a whole HEAD or page. */
void hedge_answered(struct hedge *h, enum hedge_kind kind, uint64_t ns);
void hedge_retried(struct hedge *h);                    /* any request */
void hedge_slow_down(struct hedge *h, uint64_t now_ns); /* the store asked for fewer requests: none for 10 s */
void hedge_body(struct hedge *h, uint64_t bytes, uint64_t took_ns); /* a body came, whole */
/* At its present rate, would the rest of a body take far longer than a whole body usually takes? */
bool hedge_is_slow(const struct hedge *h, uint64_t bytes, uint64_t received, uint64_t took_ns);
uint64_t hedge_wait_ns(const struct hedge *h, enum hedge_kind kind);                 /* 0: too few answers are known */
bool hedge_is_late(const struct hedge *h, enum hedge_kind kind, uint64_t waited_ns); /* has it waited too long? */
/* Takes one request from the budget, if a read that was sent that long ago may use it. */
bool hedge_take(struct hedge *h, enum hedge_kind kind, uint64_t now_ns, uint64_t waited_ns);
bool hedge_take_restart(struct hedge *h); /* of a slow body */
