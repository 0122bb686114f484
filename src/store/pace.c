/* SPDX-License-Identifier: Apache-2.0 */
#include "store/pace.h"
#include "util/clock.h"
#include <math.h>

enum { ROUND_ANSWERS = 32, ROUND_ANSWERS_LEAST = 8, FORGET_ROUNDS = 64, PROOF = 8 };
#define ROUND_LEAST_NS (20 * NS_PER_MS)
#define ROUND_MOST_NS NS_PER_SECOND

/* Several clients may share a low limit. */
#define PER_SECOND_LEAST 1.0

/* Of pace_start(). START_END: more than any store limits. A store may refuse one request in twenty at random: three in
 * a row are not chance. */
#define START_PER_SECOND 100.0
#define START_END 6400.0
#define START_REFUSALS 3

/* Stores allow bursts of a tenth of a second or of a second, or count by the second. */
#define BRIEF_NS (NS_PER_SECOND / 10)
#define LASTING_NS NS_PER_SECOND

/* Unknown yet: a random share of 5 % must not slow a run. Known to follow our rate: a store that limits it refuses next
 * to nothing below its limit. */
static const double allowed_at_first = 1.0 / 16, allowed_at_limit = 1.0 / 64;
static const double few = 0.5;
static const double below = 0.95; /* of the served rate: lets the store's token bucket fill again */

/* Of the limit. A known limit is raised by a 64th after a second without a refusal, and by four times as much after
 * each further one: a limit that was measured at half of the store's is right again after four seconds. CUBIC (RFC
 * 9438) probes like this, too: slowly near the last limit, then ever faster. Another limit is raised in each round. */
static const double growth_first = 1.0 / 64, growth_faster = 4, growth_most = 1, growth_unknown = 1.0 / 8;

/* Above, sending less is right whatever the cause. */
static const double alike_most = 0.75, allowed_most = 0.6;

/* Clients that share a limit lower their rates one after the other: so many rounds in which that did not help prove
 * nothing. */
enum { IN_VAIN_MOST = 3 };

/* In a search. FLIGHT: GETs of the first rate that are under way at once. DOWN: divides the rate after DOWN_ANSWERS
 * refusals. LATELY: divides the rate that was served lately, for the least rate: a store that counts by the second must
 * soon be seen to serve again. */
enum { FLIGHT = 8, DOWN = 4, DOWN_ANSWERS = 2, LATELY = 16, KNOWN_ANSWERS = 2 };
static const double up = 1.5, up_warned = 1.25;

/* A measurement over one round. */
struct round {
    double sent_per_second, served_per_second;
    double share; /* of refusals */
    uint64_t elapsed_ns, latency_ns;
};

static void note_served(struct pace *p, uint64_t now_ns)
{
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

/* It has lowered the share of refusals. Its rounds last a second: in a shorter one, chance moves the limit, and some
 * stores count by the second. */
static bool is_limit_known(const struct pace *p)
{
    return p->per_second > 0 && p->allowed == allowed_at_limit && !p->search.runs;
}

/* Two standard deviations above the allowed share: chance alone exceeds it in one round of forty. A known limit is
 * lowered without that proof: if chance was the cause, it costs a twentieth for some seconds. */
static bool is_too_many(const struct pace *p)
{
    double expected = p->asked * p->allowed;
    return p->refused > (is_limit_known(p) ? fmax(expected, 1) : expected + 2 * sqrt(expected));
}

/* Far more than chance: until the answers that are on their way have shown how many are served, next to nothing more is
 * sent. */
static bool is_overrun(const struct pace *p)
{
    return p->refused >= 2 + 4 * p->asked * p->allowed;
}

static void allow(struct pace *p, double share)
{
    p->allowed = share;
    p->rounds = FORGET_ROUNDS;
}

/* The refusals do not depend on our rate. */
static void lift(struct pace *p, double share)
{
    allow(p, fmin(1.5 * share, allowed_most));
    p->per_second = 0;
    p->in_vain = 0;
}

/* The first round after the limit was lowered. Refusals that stay as frequent do not depend on our rate. That nearly
 * none are refused proves the limit if many would have been. */
static void judge(struct pace *p, double share)
{
    double then = p->share_then;
    bool would_be_many = then > 1.0 / 4 || (p->refused == 0 && then * p->asked >= PROOF);
    bool mattered = p->rounds > 0 && p->allowed == allowed_at_limit;
    bool are_enough = mattered && 2 * then * p->asked >= PROOF;
    if (share < then / 4 && (are_enough || would_be_many)) {
        allow(p, allowed_at_limit);
        p->in_vain = 0;
    } else if (share >= then / 2 && share < alike_most && ++p->in_vain > IN_VAIN_MOST) {
        lift(p, share);
    }
    p->share_then = 0;
}

/* A limit is reached by GETs that are sent at its pace. If other causes delay some of them, fewer are served than the
 * store would serve. A short round may be chance, or the end of a second that the store counts: the limit does not fall
 * below half of the rate that was served in the last second. */
static void lower(struct pace *p, const struct round *r)
{
    if (p->per_second == PER_SECOND_LEAST && r->share < alike_most) {
        lift(p, r->share);
        return;
    }
    double served_per_second = fmax(r->served_per_second, p->per_second * (1 - r->share));
    p->per_second = fmax(below * fmax(served_per_second, p->lasting / 2), PER_SECOND_LEAST);
    p->growth = growth_first;
    p->share_then = r->share;
}

static void raise(struct pace *p)
{
    if (!is_limit_known(p)) {
        p->per_second *= 1 + growth_unknown;
    } else if (p->refused == 0 && !p->is_at_refusal) {
        p->per_second *= 1 + p->growth;
        p->growth = fmin(growth_faster * p->growth, growth_most);
    }
}

/* If not, something else limits us, and a higher limit would not be tried. */
static bool is_limit_reached(const struct pace *p, const struct round *r)
{
    return 2 * r->sent_per_second >= p->per_second;
}

static void begin_search(struct pace *p, const struct round *r)
{
    double flight = FLIGHT * (double)NS_PER_SECOND / (double)r->latency_ns, known = known_rate(p);
    double first = fmax(fmax(fmin(p->brief, flight), known), PER_SECOND_LEAST);
    p->search = (struct pace_search){.runs = true, .known = known};
    p->per_second = first;
    p->in_vain = 0;
    p->share_then = 0;
}

static void step_down(struct pace *p)
{
    if (p->search.known == 0)
        p->search.known = known_rate(p);
    p->search.is_near = false;
    double lately = p->lasting * exp(-(double)(p->now_ns - p->served_ns) / (double)LASTING_NS);
    p->per_second = fmax(p->per_second / DOWN, fmax(lately / LATELY, PER_SECOND_LEAST));
}

/* The limit is known. */
static void end_search(struct pace *p)
{
    p->search.runs = false;
    p->growth = growth_first;
    allow(p, allowed_at_limit);
}

static void step_up(struct pace *p, const struct round *r)
{
    p->search.known = 0;
    if (p->share_then > 0)
        judge(p, r->share);
    if (p->per_second > 0 && is_too_many(p)) {
        lower(p, r);
        p->search.is_near = true;
    } else if (p->per_second > 0 && p->search.is_near) {
        end_search(p);
    } else if (is_limit_reached(p, r)) {
        p->per_second *= p->refused > 0 ? up_warned : up;
    } else {
        p->search.runs = false;
    }
    p->search.runs &= p->per_second > 0;
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

/* Whether a step has ended: one answer to a request of the present rate, or some refusals in a row. */
static bool start(struct pace *p, const struct round *r)
{
    if (p->in_row > 0) {
        p->is_starting = p->per_second < START_END;
        p->per_second = p->is_starting ? 2 * p->per_second : 0;
    } else if (p->refused >= START_REFUSALS) {
        p->is_starting = false;
        begin_search(p, r);
    }
    return p->in_row > 0 || !p->is_starting;
}

static void end_round(struct pace *p, const struct round *r)
{
    if (p->is_held)
        p->per_second = p->held_per_second;
    if (p->is_held && p->served < ROUND_ANSWERS_LEAST && p->refused > p->served) {
        begin_search(p, r);
        return;
    }
    if (p->share_then > 0)
        judge(p, r->share);
    if (p->rounds > 0)
        p->rounds--;
    if (p->rounds == 0)
        p->allowed = allowed_at_first;
    if (is_too_many(p))
        lower(p, r);
    else if (is_limit_reached(p, r))
        raise(p);
}

static double rate_of(unsigned count, uint64_t ns)
{
    return count * (double)NS_PER_SECOND / (double)(ns ? ns : 1);
}

static uint64_t least_ns(uint64_t latency_ns)
{
    return max_u64(latency_ns, ROUND_LEAST_NS);
}

static void hold(struct pace *p, const struct round *r)
{
    p->is_held = true;
    p->held_per_second = p->per_second;
    p->per_second = fmax(rate_of(1, least_ns(r->latency_ns)), PER_SECOND_LEAST);
}

/* Whether the round has ended. */
static bool advance(struct pace *p, const struct round *r, uint64_t now_ns)
{
    if (p->is_starting)
        return start(p, r);
    if (p->search.runs)
        return search(p, r, now_ns);
    if (!p->is_held && is_overrun(p))
        hold(p, r);
    bool is_long = r->elapsed_ns >= ROUND_MOST_NS && p->asked >= ROUND_ANSWERS_LEAST;
    bool has_enough = p->is_held || (p->asked >= ROUND_ANSWERS && !is_limit_known(p));
    bool is_whole = has_enough && now_ns - p->asked_ns >= least_ns(r->latency_ns);
    if (is_long || is_whole)
        end_round(p, r);
    return is_long || is_whole;
}

static void begin_round(struct pace *p, uint64_t now_ns, bool at_refusal)
{
    p->began_ns = now_ns;
    p->served = p->asked = p->refused = p->in_row = 0;
    p->is_at_refusal = at_refusal;
    p->is_held = false;
}

/* While a round is held, answers arrive for one latency. */
static struct round measure(const struct pace *p, uint64_t sent_ns, uint64_t now_ns)
{
    uint64_t elapsed_ns = now_ns - p->began_ns, latency_ns = now_ns - sent_ns;
    return (struct round){.share = (double)p->refused / p->asked,
                          .elapsed_ns = elapsed_ns,
                          .latency_ns = latency_ns,
                          .sent_per_second = rate_of(p->asked, now_ns - p->asked_ns),
                          .served_per_second =
                              rate_of(p->served, p->is_held ? min_u64(elapsed_ns, latency_ns) : elapsed_ns)};
}

void pace_start(struct pace *p)
{
    p->is_starting = true;
    p->per_second = START_PER_SECOND;
}

void pace_answered(struct pace *p, uint64_t sent_ns, uint64_t answered_ns, bool refused)
{
    /* The clocks of two lanes differ: each is read once a turn of its loop. */
    uint64_t now_ns = p->now_ns = max_u64(p->now_ns, answered_ns);
    if (p->began_ns == 0) {
        p->began_ns = p->changed_ns = p->first_ns = sent_ns;
        p->allowed = allowed_at_first;
    }
    if (!refused)
        note_served(p, now_ns);
    if (p->search.known > 0) /* some of the GETs before the search may still be served */
        p->search.known = fmax(p->search.known, known_rate(p));
    p->served += !refused;
    if (sent_ns < p->changed_ns)
        return;
    if (refused && !p->is_at_refusal && !p->search.runs && !p->is_starting) {
        begin_round(p, now_ns, true);
        return;
    }
    if (p->asked++ == 0)
        p->asked_ns = now_ns;
    p->refused += refused;
    p->in_row = refused ? 0 : p->in_row + 1;
    double before = p->per_second;
    struct round r = measure(p, sent_ns, now_ns);
    if (!advance(p, &r, now_ns))
        return;
    p->share = r.share;
    if (p->per_second != before)
        p->changed_ns = now_ns;
    begin_round(p, now_ns, false);
}

void pace_apply(struct rate *r, uint64_t unit, uint64_t units_per_second, uint64_t now_ns)
{
    uint64_t before = atomic_load(&r->units_per_second);
    rate_change(r, units_per_second, now_ns);
    if (units_per_second != before && (!before || units_per_second < before))
        rate_reserve(r, unit, now_ns);
}

bool pace_refusals_are_few(const struct pace *p)
{
    return p->share < few;
}
