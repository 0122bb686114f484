/* SPDX-License-Identifier: Apache-2.0 */
#include "pace.h"
#include "util/clock.h"
#include <math.h>

enum { ROUND_ANSWERS = 32, ROUND_ANSWERS_LEAST = 8, FORGET_ROUNDS = 64, STEADY_ROUNDS = 3 };

#define ROUND_MOST_NS NS_PER_SECOND
#define PER_SECOND_LEAST 8.0

/* Unknown yet: a random share of 5 % must not slow a run. Known to follow our rate: a store that limits it refuses next
 * to nothing below its limit. */
static const double allowed_at_first = 1.0 / 16, allowed_at_limit = 1.0 / 64;
static const double few = 0.5, nearly_all = 0.9;
static const double below = 0.95; /* of the served rate: lets the store's token bucket fill again */
static const double growth_least = 1.0 / 64, growth_most = 1.0 / 4; /* of the limit, a round */
static const double cut_most = 1.0 / 8;                             /* one round may have met a burst */

/* Two standard deviations above the allowed share: chance alone exceeds it in one round of forty. */
static bool is_too_many(const struct pace *p)
{
    double expected = p->asked * p->allowed;
    return p->refused > expected + 2 * sqrt(expected);
}

static void allow(struct pace *p, double share, unsigned rounds)
{
    p->allowed = share;
    p->rounds = rounds;
}

/* The first round after the limit was lowered. Refusals that stay as frequent do not depend on our rate; where that
 * rate has mattered before, one such round may be chance. */
static void judge(struct pace *p, double share)
{
    bool is_alike = share >= p->share_then / 2 && share <= p->share_then * 1.5 && share < 0.5;
    bool mattered = p->rounds > 0 && p->allowed == allowed_at_limit;
    p->in_vain = is_alike ? p->in_vain + 1 : 0;
    if (share < p->share_then / 4 && (mattered || p->share_then > 0.25)) {
        allow(p, allowed_at_limit, FORGET_ROUNDS);
    } else if (p->in_vain > mattered) {
        allow(p, 1.5 * share, FORGET_ROUNDS);
        p->per_second = 0;
    }
    p->share_then = 0;
}

static void lower(struct pace *p, double sent_per_second, double share)
{
    double served = sent_per_second * fmax(1 - share, cut_most);
    p->per_second = fmax(below * served, PER_SECOND_LEAST);
    p->raised = 0;
    p->is_blind = share > nearly_all;
    p->share_then = share;
}

/* Raises the limit slowly above the rate that was served last, then ever faster. After an outage the limit doubles. */
static void raise(struct pace *p, double sent_per_second)
{
    if (p->per_second == 0)
        return;
    double growth = fmin(ldexp(growth_least, (int)(p->raised++ / STEADY_ROUNDS)), growth_most);
    p->per_second *= 1 + (p->is_blind ? 1 : growth);
    if (p->per_second > 2 * sent_per_second) /* something else limits us */
        p->per_second = 0;
}

static void end_round(struct pace *p, uint64_t now_ns)
{
    double seconds = (double)(now_ns - p->began_ns) / (double)NS_PER_SECOND;
    double sent_per_second = p->answers / seconds, share = (double)p->refused / p->asked;
    p->share = share;
    if (p->per_second > 0) /* some of them answer requests that were sent before the limit */
        sent_per_second = fmin(sent_per_second, p->per_second);
    if (p->share_then > 0)
        judge(p, share);
    if (p->rounds > 0)
        p->rounds--;
    if (p->rounds == 0)
        p->allowed = allowed_at_first;
    if (is_too_many(p))
        lower(p, sent_per_second, share);
    else
        raise(p, sent_per_second);
}

void pace_answered(struct pace *p, uint64_t sent_ns, uint64_t now_ns, bool refused)
{
    if (p->began_ns == 0) {
        p->began_ns = now_ns;
        return;
    }
    p->answers++;
    if (sent_ns < p->began_ns)
        return;
    p->asked++;
    p->refused += refused;
    uint64_t elapsed = now_ns - p->began_ns;
    bool is_long = elapsed >= ROUND_MOST_NS && p->asked >= ROUND_ANSWERS_LEAST;
    if (!is_long && (p->asked < ROUND_ANSWERS || elapsed < 2 * (now_ns - sent_ns)))
        return;
    end_round(p, now_ns);
    p->began_ns = now_ns;
    p->answers = p->asked = p->refused = 0;
}

bool pace_refusals_are_few(const struct pace *p)
{
    return p->share < few;
}
