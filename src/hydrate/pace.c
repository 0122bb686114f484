/* SPDX-License-Identifier: Apache-2.0 */
#include "pace.h"
#include "util/clock.h"
#include <math.h>

enum { ROUND_ANSWERS = 32, ROUND_ANSWERS_LEAST = 8, FORGET_ROUNDS = 64, STEADY_ROUNDS = 3, CRUDE_ROUNDS = 9 };
#define ROUND_MOST_NS NS_PER_SECOND
#define PER_SECOND_LEAST 4.0

/* Stores allow bursts of a tenth of a second or of a second, or count by the second. */
#define BRIEF_NS (NS_PER_SECOND / 10)
#define LASTING_NS NS_PER_SECOND

/* Unknown yet: a random share of 5 % must not slow a run. Known to follow our rate: a store that limits it refuses next
 * to nothing below its limit. */
static const double allowed_at_first = 1.0 / 16, allowed_at_limit = 1.0 / 64;
static const double few = 0.5;
static const double below = 0.95; /* of the served rate: lets the store's token bucket fill again */
static const double growth_least = 1.0 / 64, growth_most = 1.0 / 4; /* of the limit, a round */
static const double cut_most = 1.0 / 8;                             /* one round may have met a burst */

/* In a search. FLIGHT: GETs of the first rate that are under way at once. DOWN: divides the rate after DOWN_ANSWERS
 * refusals. */
enum { FLIGHT = 8, DOWN = 4, DOWN_ANSWERS = 2, KNOWN_ANSWERS = 2 };
static const double up = 1.5;

/* A measurement over one round. */
struct round {
    double sent_per_second, served_per_second;
    double share; /* of refusals */
    uint64_t elapsed_ns, latency_ns;
};

/* The clocks of two lanes differ: each is read once a turn of its loop. */
static void note_served(struct pace *p, uint64_t now_ns)
{
    now_ns = max_u64(now_ns, p->served_ns);
    double elapsed_ns = (double)(now_ns - p->served_ns), second_ns = (double)NS_PER_SECOND;
    p->brief = p->brief * exp(-elapsed_ns / (double)BRIEF_NS) + second_ns / (double)BRIEF_NS;
    p->lasting = p->lasting * exp(-elapsed_ns / (double)LASTING_NS) + second_ns / (double)LASTING_NS;
    p->served_ns = now_ns;
}

/* A limit just below the rate that was served in the last second. */
static double known_rate(const struct pace *p)
{
    return below * p->lasting;
}

/* Two standard deviations above the allowed share: chance alone exceeds it in one round of forty. */
static bool is_too_many(const struct pace *p)
{
    double expected = p->asked * p->allowed;
    return p->refused > expected + 2 * sqrt(expected);
}

/* So many, and so few are served, that the end of the round would not show a rate. */
static bool are_nearly_all(const struct pace *p)
{
    unsigned served = p->asked - p->refused;
    return served < ROUND_ANSWERS_LEAST && p->refused > served && p->refused >= 4 * (1 + p->asked * p->allowed);
}

static void allow(struct pace *p, double share)
{
    p->allowed = share;
    p->rounds = FORGET_ROUNDS;
}

/* The first round after the limit was lowered. Refusals that stay as frequent do not depend on our rate; where that
 * rate has mattered before, one such round may be chance. */
static void judge(struct pace *p, double share)
{
    bool is_alike = share >= p->share_then / 2 && share <= p->share_then * 1.5 && share < few;
    bool mattered = p->rounds > 0 && p->allowed == allowed_at_limit;
    p->in_vain = is_alike ? p->in_vain + 1 : 0;
    if (share < p->share_then / 4 && (mattered || p->share_then > 0.25)) {
        allow(p, allowed_at_limit);
    } else if (p->in_vain > mattered) {
        allow(p, 1.5 * share);
        p->per_second = 0;
    }
    p->share_then = 0;
}

/* In a round shorter than the store's bursts, more may be served than its limit. */
static void lower(struct pace *p, const struct round *r)
{
    double served = fmax(r->served_per_second, cut_most * r->sent_per_second);
    if (r->elapsed_ns < BRIEF_NS && r->share > 0.25)
        served = fmin(served, p->brief);
    p->per_second = fmax(below * served, PER_SECOND_LEAST);
    p->raised = r->share > 0.25 ? CRUDE_ROUNDS : 0;
}

/* Raises the limit slowly above the rate that was served last, then ever faster. */
static void raise(struct pace *p, const struct round *r)
{
    if (p->per_second == 0)
        return;
    double growth = fmin(ldexp(growth_least, (int)(p->raised++ / STEADY_ROUNDS)), growth_most);
    p->per_second *= 1 + growth;
    if (p->per_second > 2 * r->sent_per_second) /* something else limits us */
        p->per_second = 0;
}

static void begin_search(struct pace *p, const struct round *r)
{
    double flight = FLIGHT * (double)NS_PER_SECOND / (double)r->latency_ns, known = known_rate(p);
    double first = fmax(fmax(fmin(p->brief, flight), known), PER_SECOND_LEAST);
    p->search = (struct pace_search){.runs = true, .known = known};
    p->per_second = first;
    p->raised = p->in_vain = 0;
    p->share_then = 0;
}

static void step_down(struct pace *p)
{
    if (p->search.known == 0)
        p->search.known = known_rate(p);
    p->search.is_near = false;
    p->per_second = fmax(p->per_second / DOWN, PER_SECOND_LEAST);
}

static void step_up(struct pace *p, const struct round *r)
{
    p->search.known = 0;
    if (is_too_many(p)) {
        lower(p, r);
        p->search.is_near = true;
    } else if (p->search.is_near) {
        p->search.runs = false;
        allow(p, allowed_at_limit);
    } else {
        p->per_second *= p->refused > 0 ? 1 + growth_most : up;
        p->search.runs = p->per_second < 4 * r->sent_per_second; /* else something else limits us */
        p->per_second = p->search.runs ? p->per_second : 0;
    }
}

/* Whether a step has ended. */
static bool search(struct pace *p, const struct round *r, uint64_t now_ns)
{
    struct pace_search *s = &p->search;
    bool are_all = p->refused == p->asked && p->refused >= DOWN_ANSWERS;
    bool is_long = r->elapsed_ns >= 2 * r->latency_ns && r->elapsed_ns >= BRIEF_NS;
    bool serves_again = p->in_row >= KNOWN_ANSWERS && s->known > p->per_second;
    if (!are_all && !(is_long && (serves_again || p->asked >= ROUND_ANSWERS_LEAST)))
        return false;
    if (are_all) {
        step_down(p);
    } else if (serves_again) {
        p->per_second = s->known;
        s->known = 0;
        s->is_near = now_ns - p->first_ns >= LASTING_NS; /* before, it was measured over less */
    } else {
        step_up(p, r);
    }
    return true;
}

static void end_round(struct pace *p, const struct round *r)
{
    if (p->share_then > 0)
        judge(p, r->share);
    if (p->rounds > 0)
        p->rounds--;
    if (p->rounds == 0)
        p->allowed = allowed_at_first;
    if (is_too_many(p)) {
        lower(p, r);
        p->share_then = r->share;
    } else {
        raise(p, r);
    }
}

/* Whether the round has ended. */
static bool advance(struct pace *p, const struct round *r, uint64_t now_ns)
{
    if (p->search.runs)
        return search(p, r, now_ns);
    if (are_nearly_all(p)) {
        begin_search(p, r);
        return true;
    }
    bool is_long = r->elapsed_ns >= ROUND_MOST_NS && p->asked >= ROUND_ANSWERS_LEAST;
    if (!is_long && (p->asked < ROUND_ANSWERS || r->elapsed_ns < 2 * r->latency_ns))
        return false;
    end_round(p, r);
    return true;
}

void pace_answered(struct pace *p, uint64_t sent_ns, uint64_t now_ns, bool refused)
{
    if (p->began_ns == 0) {
        p->began_ns = p->first_ns = sent_ns;
        p->allowed = allowed_at_first;
    }
    if (!refused)
        note_served(p, now_ns);
    p->served += !refused;
    if (p->search.known > 0) /* some of the GETs before the search may still be served */
        p->search.known = fmax(p->search.known, known_rate(p));
    p->answers++;
    if (sent_ns < p->began_ns)
        return;
    p->asked++;
    p->refused += refused;
    p->in_row = refused ? 0 : p->in_row + 1;
    struct round r = {
        .share = (double)p->refused / p->asked, .elapsed_ns = now_ns - p->began_ns, .latency_ns = now_ns - sent_ns};
    double rounds_per_second = (double)NS_PER_SECOND / (double)(r.elapsed_ns ? r.elapsed_ns : 1);
    r.sent_per_second = p->answers * rounds_per_second;
    r.served_per_second = p->served * rounds_per_second;
    if (!advance(p, &r, now_ns))
        return;
    p->share = r.share;
    p->began_ns = now_ns;
    p->answers = p->served = p->asked = p->refused = p->in_row = 0;
}

bool pace_refusals_are_few(const struct pace *p)
{
    return p->share < few;
}
