/* SPDX-License-Identifier: Apache-2.0 */
/* refusal_limit.h - throttles callers whose requests are rejected, because each costs a request to the API server.
 * home: any thread. All callers share 1,024 slots.
 *
 * Rejections count by token, so that other callers behind the same address are served. They also count by address, with
 * ten times the limit, for callers that change their token. */
#pragma once

#include "io/rate.h"
#include "util/str.h"

enum { REFUSAL_SLOTS = 1024, REFUSAL_BURST = 10, REFUSAL_SECONDS = 2, REFUSAL_ADDRESS_FACTOR = 10 };

struct refusal_limit {
    struct rate slots[REFUSAL_SLOTS]; /* a rejection is REFUSAL_ADDRESS_FACTOR units of its token, one of its address */
};

void refusal_limit_init(struct refusal_limit *r);

/* Seconds until this peer is served again with this token; 0: now. */
unsigned refusal_limit_wait(struct refusal_limit *r, struct str peer, struct str token, uint64_t now_ns);
void refusal_limit_add(struct refusal_limit *r, struct str peer, struct str token, uint64_t now_ns);
