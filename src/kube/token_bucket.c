/* SPDX-License-Identifier: Apache-2.0 */
#include "token_bucket.h"
#include "util/clock.h"

void token_bucket_init(struct token_bucket *b, unsigned per_second, unsigned burst)
{
    uint64_t interval = NS_PER_SECOND / per_second;
    *b = (struct token_bucket){.interval_ns = interval, .burst_ns = interval * (burst - 1)};
}

static uint64_t wait_ns(const struct token_bucket *b, uint64_t now_ns)
{
    uint64_t ahead_ns = max_u64(b->paid_ns, now_ns) - now_ns;
    return ahead_ns > b->burst_ns ? ahead_ns - b->burst_ns : 0;
}

static void take_one(struct token_bucket *b, uint64_t now_ns)
{
    b->paid_ns = max_u64(b->paid_ns, now_ns) + b->interval_ns;
}

uint64_t token_bucket_take(struct token_bucket *b, uint64_t now_ns)
{
    uint64_t wait = wait_ns(b, now_ns);
    if (!wait)
        take_one(b, now_ns);
    return wait;
}

uint64_t token_bucket_take_both(struct token_bucket *a, struct token_bucket *b, uint64_t now_ns)
{
    uint64_t wait = max_u64(wait_ns(a, now_ns), wait_ns(b, now_ns));
    if (!wait) {
        take_one(a, now_ns);
        take_one(b, now_ns);
    }
    return wait;
}
