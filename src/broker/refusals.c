/* SPDX-License-Identifier: Apache-2.0 */
#include "refusals.h"
#include "util/clock.h"
#include "util/hash.h"

#define COST_NS (REFUSALS_SECONDS * NS_PER_SECOND)

void refusals_init(struct refusals *r)
{
    *r = (struct refusals){0};
    pthread_mutex_init(&r->lock, NULL);
}

void refusals_done(struct refusals *r)
{
    pthread_mutex_destroy(&r->lock);
}

static uint64_t *place_of(struct refusals *r, struct str peer)
{
    uint8_t hash[32];
    sha256(peer, hash);
    return &r->paid_ns[((size_t)hash[0] << 8 | hash[1]) % REFUSALS_SLOTS];
}

unsigned refusals_wait(struct refusals *r, struct str peer, uint64_t now_ns)
{
    pthread_mutex_lock(&r->lock);
    uint64_t paid = *place_of(r, peer), limit = now_ns + REFUSALS_BURST * COST_NS;
    pthread_mutex_unlock(&r->lock);
    return paid > limit ? (unsigned)((paid - limit) / NS_PER_SECOND + 1) : 0;
}

void refusals_add(struct refusals *r, struct str peer, uint64_t now_ns)
{
    pthread_mutex_lock(&r->lock);
    uint64_t *paid = place_of(r, peer);
    *paid = max_u64(*paid, now_ns) + COST_NS;
    pthread_mutex_unlock(&r->lock);
}
