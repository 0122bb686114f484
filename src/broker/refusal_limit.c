/* SPDX-License-Identifier: Apache-2.0 */
#include "refusal_limit.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/thread.h"

#define COST_NS (REFUSAL_SECONDS * NS_PER_SECOND)

void refusal_limit_init(struct refusal_limit *r)
{
    *r = (struct refusal_limit){0};
    pthread_mutex_init(&r->lock, NULL);
}

void refusal_limit_done(struct refusal_limit *r)
{
    pthread_mutex_destroy(&r->lock);
}

static uint64_t *slot_of(struct refusal_limit *r, struct str subject)
{
    uint8_t hash[32];
    sha256(subject, hash);
    return &r->paid_ns[((size_t)hash[0] << 8 | hash[1]) % REFUSAL_SLOTS];
}

unsigned refusal_limit_wait(struct refusal_limit *r, struct str peer, struct str token, uint64_t now_ns)
{
    auto_lock(&r->lock);
    uint64_t paid = max_u64(*slot_of(r, peer), *slot_of(r, token)), limit = now_ns + REFUSAL_BURST * COST_NS;
    return paid > limit ? (unsigned)((paid - limit) / NS_PER_SECOND + 1) : 0;
}

static void pay(uint64_t *paid, uint64_t cost_ns, uint64_t now_ns)
{
    *paid = max_u64(*paid, now_ns) + cost_ns;
}

void refusal_limit_add(struct refusal_limit *r, struct str peer, struct str token, uint64_t now_ns)
{
    auto_lock(&r->lock);
    pay(slot_of(r, token), COST_NS, now_ns);
    pay(slot_of(r, peer), COST_NS / REFUSAL_ADDRESS_FACTOR, now_ns);
}
