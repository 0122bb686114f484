/* SPDX-License-Identifier: Apache-2.0 */
/* refusals.h - who is refused again and again is not looked at for a while: a token that nobody knows costs the API
 * server a question. Counted by the token, so that a neighbour behind the same address is heard; and, ten times as
 * patiently, by the address, for who comes with another token each time.
 * home: any thread; under its own lock. Bounded: all share 1,024 places. */
#pragma once

#include "util/str.h"
#include <pthread.h>
#include <stdbool.h>

enum { REFUSALS_SLOTS = 1024, REFUSALS_BURST = 10, REFUSALS_SECONDS = 2, REFUSALS_NEIGHBOURS = 10 };

struct refusals {
    pthread_mutex_t lock;             /* guards what follows */
    uint64_t paid_ns[REFUSALS_SLOTS]; /* a place's refusals are paid for until then, REFUSALS_SECONDS each */
};

void refusals_init(struct refusals *r);
void refusals_done(struct refusals *r);

/* Seconds until this peer is heard again with this token; 0: now. */
unsigned refusals_wait(struct refusals *r, struct str peer, struct str token, uint64_t now_ns);
void refusals_add(struct refusals *r, struct str peer, struct str token, uint64_t now_ns);
