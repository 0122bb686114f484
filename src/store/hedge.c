/* SPDX-License-Identifier: Apache-2.0 */
#include "hedge.h"
#include "util/clock.h"

enum {
    SAMPLES_LEAST = 16,   /* fewer GETs give no percentile */
    SAMPLES_ENOUGH = 100, /* for a 99th percentile; with fewer, FEW_TIMES the maximum of GETs or the median of others */
    FEW_TIMES = 4,
    SAMPLES_MOST = 8192,    /* then they count half */
    UPDATE_EVERY = 16,      /* samples between two sums over all buckets, which are too slow for each request */
    BUCKET_SHIFT = 16,      /* 65 us */
    COST = 100,             /* units that a second request takes; each read adds one, so 1 % are sent again */
    BUDGET_MAX = 20 * COST, /* maximum of the budget: an hour without faults must not pay for an overload */
    RESERVE = 5 * COST,     /* reserve for the requests that have waited longest */
};

/* A shorter delay is as often due to our scheduling as to the server. */
#define WAIT_LEAST_NS (50 * NS_PER_MS)
#define FEW_LEAST_NS NS_PER_SECOND
/* Most listings have one page, and nothing starts before it: it cannot wait for enough samples. */
#define FIRST_DOCUMENT_NS (4 * NS_PER_SECOND)
#define QUIET_NS (10 * NS_PER_SECOND)

void hedge_init(struct hedge *h)
{
    *h = (struct hedge){.of[HEDGE_HEAD].wait_ns = FIRST_DOCUMENT_NS,
                        .of[HEDGE_LIST].wait_ns = FIRST_DOCUMENT_NS,
                        .budget = RESERVE, /* a run of a few requests earns no budget, and waits for its slowest one */
                        .restarts = RESERVE};
}

static unsigned bucket_of(uint64_t ns)
{
    uint64_t n = (ns >> BUCKET_SHIFT) + 4; /* at least three bits: the octave and the two below its top */
    unsigned top = 63U - (unsigned)__builtin_clzll(n);
    unsigned bucket = (top - 2) * 4 + (unsigned)((n >> (top - 2)) & 3);
    return bucket < HEDGE_BUCKETS ? bucket : HEDGE_BUCKETS - 1;
}

static uint64_t bucket_end_ns(unsigned bucket)
{
    return (((4 + (uint64_t)(bucket & 3) + 1) << (bucket / 4)) - 4) << BUCKET_SHIFT;
}

/* `few_percent`: the percentile to multiply by FEW_TIMES while there are fewer than SAMPLES_ENOUGH samples. */
static void update_wait(struct hedge_latency *l, unsigned few_percent)
{
    uint64_t total = 0, seen = 0;
    for (unsigned i = 0; i < HEDGE_BUCKETS; i++)
        total += atomic_load_explicit(&l->counts[i], memory_order_relaxed);
    bool are_enough = total >= SAMPLES_ENOUGH;
    unsigned at = 0;
    for (; at + 1 < HEDGE_BUCKETS; at++) {
        seen += atomic_load_explicit(&l->counts[at], memory_order_relaxed);
        if (seen * 100 >= total * (are_enough ? 99 : few_percent))
            break;
    }
    uint64_t wait = bucket_end_ns(at);
    atomic_store(&l->wait_ns, are_enough ? max_u64(wait, WAIT_LEAST_NS) : max_u64(FEW_TIMES * wait, FEW_LEAST_NS));
}

/* Concurrent increments may be lost: one in thousands. */
static void halve(struct hedge_latency *l)
{
    for (unsigned i = 0; i < HEDGE_BUCKETS; i++)
        atomic_store(&l->counts[i], atomic_load(&l->counts[i]) / 2);
    atomic_store(&l->samples, SAMPLES_MOST / 2);
}

void hedge_answered(struct hedge *h, enum hedge_kind kind, uint64_t ns)
{
    struct hedge_latency *l = &h->of[kind];
    atomic_fetch_add_explicit(&l->counts[bucket_of(ns)], 1, memory_order_relaxed);
    uint32_t samples = atomic_fetch_add_explicit(&l->samples, 1, memory_order_relaxed) + 1;
    if (kind != HEDGE_GET && samples < SAMPLES_LEAST) /* one page that was slow must not raise the delay */
        update_wait(l, 50);
    if (samples >= SAMPLES_LEAST && samples % UPDATE_EVERY == 0)
        update_wait(l, kind == HEDGE_GET ? 99 : 50);
    if (samples == SAMPLES_MOST)
        halve(l);
}

static void pay(_Atomic int32_t *budget, int32_t change)
{
    int32_t before = atomic_load_explicit(budget, memory_order_relaxed), after;
    do {
        after = before + change;
        after = after < 0 ? 0 : after > BUDGET_MAX ? BUDGET_MAX : after;
    } while (
        !atomic_compare_exchange_weak_explicit(budget, &before, after, memory_order_relaxed, memory_order_relaxed));
}

void hedge_sent(struct hedge *h)
{
    pay(&h->budget, 1);
    pay(&h->restarts, 1);
}

void hedge_retried(struct hedge *h)
{
    pay(&h->budget, -COST);
}

/* A body shorter than a MiB measures latency, not throughput: it is compared with other short ones, whatever their
 * lengths. A second request must save more than its own cost. */
enum { SLOW_TIMES = 4 };
#define LONG_BODY (UINT64_C(1) << 20)
#define WORTH_NS NS_PER_SECOND

static double long_bodies(uint64_t bytes)
{
    return bytes < LONG_BODY ? 1 : (double)bytes / (double)LONG_BODY;
}

void hedge_body(struct hedge *h, uint64_t bytes, uint64_t took_ns)
{
    _Atomic uint64_t *mean = bytes < LONG_BODY ? &h->short_body_ns : &h->mib_ns;
    uint64_t before = atomic_load_explicit(mean, memory_order_relaxed);
    uint64_t now = (uint64_t)((double)took_ns / long_bodies(bytes)) + 1;
    atomic_store_explicit(mean, before ? before - before / 8 + now / 8 : now, memory_order_relaxed);
}

bool hedge_is_slow(const struct hedge *h, uint64_t bytes, uint64_t received, uint64_t took_ns)
{
    const _Atomic uint64_t *mean = bytes < LONG_BODY ? &h->short_body_ns : &h->mib_ns;
    double mostly_ns = (double)atomic_load_explicit(mean, memory_order_relaxed) * long_bodies(bytes);
    double rest_ns = (double)took_ns * (double)(bytes - received) / (double)(received ? received : 1);
    return mostly_ns > 0 && rest_ns > SLOW_TIMES * mostly_ns && rest_ns > WORTH_NS && took_ns > mostly_ns;
}

void hedge_slow_down(struct hedge *h, uint64_t now_ns)
{
    atomic_store(&h->quiet_until_ns, now_ns + QUIET_NS);
}

uint64_t hedge_wait_ns(const struct hedge *h, enum hedge_kind kind)
{
    return atomic_load_explicit(&h->of[kind].wait_ns, memory_order_relaxed);
}

bool hedge_is_late(const struct hedge *h, enum hedge_kind kind, uint64_t waited_ns)
{
    uint64_t wait = hedge_wait_ns(h, kind);
    return wait && waited_ns >= wait;
}

static bool take_from(_Atomic int32_t *budget, int32_t needed)
{
    int32_t before = atomic_load(budget);
    do
        if (before < needed)
            return false;
    while (!atomic_compare_exchange_weak(budget, &before, before - COST));
    return true;
}

bool hedge_take(struct hedge *h, enum hedge_kind kind, uint64_t now_ns, uint64_t waited_ns)
{
    /* One read in a hundred exceeds the 99th percentile without a fault. Those are sent again only while the
     * budget has its reserve, which is for reads that waited longer. */
    int32_t needed = waited_ns >= 4 * hedge_wait_ns(h, kind) ? COST : RESERVE;
    return now_ns >= atomic_load(&h->quiet_until_ns) && take_from(&h->budget, needed);
}

bool hedge_take_restart(struct hedge *h)
{
    return take_from(&h->restarts, COST);
}
