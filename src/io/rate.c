/* SPDX-License-Identifier: Apache-2.0 */
#include "io/rate.h"
#include "util/clock.h"

#define BURST_NS (NS_PER_SECOND / 10)
#define CATCH_UP_NS NS_PER_SECOND

/* Longer than any useful wait, short enough that sums of it cannot overflow. */
#define COST_MAX_NS (UINT64_C(1) << 60)

/* Time until then, less the burst. */
static uint64_t wait_until(const struct rate *r, uint64_t paid_ns, uint64_t now_ns)
{
    uint64_t burst = r->slack_ns ? r->slack_ns : BURST_NS;
    return paid_ns > now_ns + burst ? paid_ns - now_ns - burst : 0;
}

uint64_t rate_reserve(struct rate *r, uint64_t bytes, uint64_t now_ns)
{
    uint64_t per_second = atomic_load_explicit(&r->units_per_second, memory_order_relaxed);
    if (per_second == 0)
        return 0;
    unsigned __int128 exact = (unsigned __int128)bytes * NS_PER_SECOND / per_second;
    uint64_t cost = exact > COST_MAX_NS ? COST_MAX_NS : (uint64_t)exact;
    uint64_t catch_up = r->slack_ns ? r->slack_ns : CATCH_UP_NS;
    uint64_t earliest = now_ns > catch_up ? now_ns - catch_up : 0;
    uint64_t before = atomic_load_explicit(&r->reserved_until_ns, memory_order_relaxed), after;
    do
        after = min_u64(max_u64(before ? before : now_ns, earliest), COST_MAX_NS * 8) + cost;
    while (!atomic_compare_exchange_weak_explicit(&r->reserved_until_ns, &before, after, memory_order_relaxed,
                                                  memory_order_relaxed));
    return wait_until(r, after, now_ns);
}

void rate_change(struct rate *r, uint64_t units_per_second, uint64_t now_ns)
{
    uint64_t before = atomic_exchange(&r->units_per_second, units_per_second);
    uint64_t until = atomic_load(&r->reserved_until_ns), after;
    if (units_per_second == 0 || units_per_second == before)
        return;
    do {
        uint64_t debt = until > now_ns ? until - now_ns : 0;
        if (before && !debt)
            return; /* unused time is kept */
        uint64_t rest = before ? (uint64_t)((double)debt * (double)before / (double)units_per_second) : 0;
        after = now_ns + min_u64(rest, NS_PER_SECOND);
    } while (!atomic_compare_exchange_weak(&r->reserved_until_ns, &until, after));
}

uint64_t rate_wait_ns(const struct rate *r, uint64_t now_ns)
{
    return atomic_load(&r->units_per_second) > 0 ? wait_until(r, atomic_load(&r->reserved_until_ns), now_ns) : 0;
}

bool rate_is_exhausted(const struct rate *r, uint64_t now_ns)
{
    return atomic_load(&r->units_per_second) > 0 && atomic_load(&r->reserved_until_ns) > now_ns;
}

uint64_t rate_ramp(uint64_t first, uint64_t elapsed_ns)
{
    const uint64_t doubles_ns = 1200 * NS_PER_SECOND;
    uint64_t times = min_u64(elapsed_ns / doubles_ns, 20), base = first << times;
    return base + (uint64_t)((double)base * (double)(elapsed_ns % doubles_ns) / (double)doubles_ns);
}
