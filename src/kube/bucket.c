/* SPDX-License-Identifier: Apache-2.0 */
#include "bucket.h"
#include "util/clock.h"

void bucket_init(struct bucket *b, unsigned per_second, unsigned burst)
{
    uint64_t interval = NS_PER_SECOND / per_second;
    *b = (struct bucket){.interval_ns = interval, .burst_ns = interval * (burst - 1)};
}

uint64_t bucket_take(struct bucket *b, uint64_t now_ns)
{
    uint64_t paid = max_u64(b->paid_ns, now_ns);
    if (paid - now_ns > b->burst_ns)
        return paid - now_ns - b->burst_ns;
    b->paid_ns = paid + b->interval_ns;
    return 0;
}
