/* SPDX-License-Identifier: Apache-2.0 */
#include "refusal_limit.h"
#include "util/clock.h"
#include "util/hash.h"

void refusal_limit_init(struct refusal_limit *r)
{
    for (size_t i = 0; i < REFUSAL_SLOTS; i++)
        rate_init(&r->slots[i], REFUSAL_ADDRESS_FACTOR / REFUSAL_SECONDS, REFUSAL_BURST * REFUSAL_ADDRESS_FACTOR + 1);
}

static struct rate *slot_of(struct refusal_limit *r, struct str subject)
{
    uint8_t hash[32];
    sha256(subject, hash);
    return &r->slots[((size_t)hash[0] << 8 | hash[1]) % REFUSAL_SLOTS];
}

unsigned refusal_limit_wait(struct refusal_limit *r, struct str peer, struct str token, uint64_t now_ns)
{
    uint64_t wait = max_u64(rate_wait_ns(slot_of(r, peer), now_ns), rate_wait_ns(slot_of(r, token), now_ns));
    return wait ? (unsigned)(wait / NS_PER_SECOND + 1) : 0;
}

void refusal_limit_add(struct refusal_limit *r, struct str peer, struct str token, uint64_t now_ns)
{
    rate_reserve(slot_of(r, token), REFUSAL_ADDRESS_FACTOR, now_ns);
    rate_reserve(slot_of(r, peer), 1, now_ns);
}
