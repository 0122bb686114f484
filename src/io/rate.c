/* SPDX-License-Identifier: Apache-2.0 */
#include "io/rate.h"
#include "util/clock.h"

#define BURST_NS (NS_PER_SECOND / 10)
#define CATCH_UP_NS NS_PER_SECOND

/* Longer than any useful wait, short enough that sums of it cannot overflow. */
#define COST_MAX_NS (UINT64_C(1) << 60)

void rate_init(struct rate *r, uint64_t per_second, uint64_t burst)
{
    /* After a rest, unused time of the slack may be used, and time of the slack may be booked ahead. So the slack is
     * half of the burst, rounded up, and not 0, which means the defaults. Something was booked long ago: so it begins
     * rested. */
    uint64_t slack_ns = max_u64(((burst - 1) * (NS_PER_SECOND / per_second) + 1) / 2, 1);
    *r = (struct rate){.units_per_second = per_second, .reserved_until_ns = 1, .slack_ns = slack_ns};
}

static uint64_t burst_ns(const struct rate *r)
{
    return r->slack_ns ? r->slack_ns : BURST_NS;
}

/* Time until then, less the burst. */
static uint64_t wait_until(const struct rate *r, uint64_t paid_ns, uint64_t now_ns)
{
    uint64_t free_ns = now_ns + burst_ns(r);
    return paid_ns > free_ns ? paid_ns - free_ns : 0;
}

/* 0: no cap. */
static uint64_t cost_ns(const struct rate *r, uint64_t bytes)
{
    uint64_t per_second = atomic_load_explicit(&r->units_per_second, memory_order_relaxed);
    unsigned __int128 exact = per_second ? (unsigned __int128)bytes * NS_PER_SECOND / per_second : 0;
    return exact > COST_MAX_NS ? COST_MAX_NS : (uint64_t)exact;
}

/* False: another thread changed the time, and *paid_ns is the new one. */
static bool pay(struct rate *r, uint64_t *paid_ns, uint64_t cost, uint64_t now_ns)
{
    uint64_t catch_up = r->slack_ns ? r->slack_ns : CATCH_UP_NS;
    uint64_t earliest = now_ns > catch_up ? now_ns - catch_up : 0;
    uint64_t after = min_u64(max_u64(*paid_ns ? *paid_ns : now_ns, earliest), COST_MAX_NS * 8) + cost;
    bool is_paid = atomic_compare_exchange_weak_explicit(&r->reserved_until_ns, paid_ns, after, memory_order_relaxed,
                                                         memory_order_relaxed);
    *paid_ns = is_paid ? after : *paid_ns;
    return is_paid;
}

uint64_t rate_reserve(struct rate *r, uint64_t bytes, uint64_t now_ns)
{
    uint64_t cost = cost_ns(r, bytes), paid_ns = atomic_load_explicit(&r->reserved_until_ns, memory_order_relaxed);
    if (cost == 0)
        return 0;
    while (!pay(r, &paid_ns, cost, now_ns))
        continue;
    return wait_until(r, paid_ns, now_ns);
}

uint64_t rate_take(struct rate *r, uint64_t bytes, uint64_t now_ns)
{
    uint64_t cost = cost_ns(r, bytes), paid_ns = atomic_load_explicit(&r->reserved_until_ns, memory_order_relaxed);
    uint64_t wait = 0;
    if (cost == 0)
        return 0;
    do
        wait = wait_until(r, paid_ns, now_ns);
    while (!wait && !pay(r, &paid_ns, cost, now_ns));
    return wait;
}

void rate_give_back(struct rate *r, uint64_t bytes)
{
    uint64_t cost = cost_ns(r, bytes), until = atomic_load(&r->reserved_until_ns);
    while (!atomic_compare_exchange_weak(&r->reserved_until_ns, &until, until > cost ? until - cost : 0))
        continue;
}

void rate_change(struct rate *r, uint64_t units_per_second, uint64_t now_ns)
{
    uint64_t before = atomic_exchange(&r->units_per_second, units_per_second);
    uint64_t until = atomic_load(&r->reserved_until_ns), next = now_ns + burst_ns(r);
    bool is_lower = !before || units_per_second < before;
    while (units_per_second != before && (is_lower || until > next) &&
           !atomic_compare_exchange_weak(&r->reserved_until_ns, &until, next))
        continue;
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
