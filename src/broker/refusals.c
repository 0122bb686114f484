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

static uint64_t *place_of(struct refusals *r, struct str whose)
{
    uint8_t hash[32];
    sha256(whose, hash);
    return &r->paid_ns[((size_t)hash[0] << 8 | hash[1]) % REFUSALS_SLOTS];
}

unsigned refusals_wait(struct refusals *r, struct str peer, struct str token, uint64_t now_ns)
{
    pthread_mutex_lock(&r->lock);
    uint64_t paid = max_u64(*place_of(r, peer), *place_of(r, token)), limit = now_ns + REFUSALS_BURST * COST_NS;
    pthread_mutex_unlock(&r->lock);
    return paid > limit ? (unsigned)((paid - limit) / NS_PER_SECOND + 1) : 0;
}

static void pay(uint64_t *paid, uint64_t cost_ns, uint64_t now_ns)
{
    *paid = max_u64(*paid, now_ns) + cost_ns;
}

void refusals_add(struct refusals *r, struct str peer, struct str token, uint64_t now_ns)
{
    pthread_mutex_lock(&r->lock);
    pay(place_of(r, token), COST_NS, now_ns);
    pay(place_of(r, peer), COST_NS / REFUSALS_NEIGHBOURS, now_ns);
    pthread_mutex_unlock(&r->lock);
}
