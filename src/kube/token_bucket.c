/* SPDX-License-Identifier: Apache-2.0 */
#include "token_bucket.h"
#include "util/clock.h"

void token_bucket_init(struct token_bucket *b, unsigned per_second, unsigned burst)
{
    uint64_t interval = NS_PER_SECOND / per_second;
    *b = (struct token_bucket){.interval_ns = interval, .burst_ns = interval * (burst - 1)};
}

uint64_t token_bucket_take(struct token_bucket *b, uint64_t now_ns)
{
    uint64_t paid = max_u64(b->paid_ns, now_ns);
    if (paid - now_ns > b->burst_ns)
        return paid - now_ns - b->burst_ns;
    b->paid_ns = paid + b->interval_ns;
    return 0;
}
