/* SPDX-License-Identifier: Apache-2.0 */
/* How many requests at once: as many as still make it faster. While an answer takes hardly longer than the quickest
 * first byte that was seen, requests wait for the way and for nothing of ours: then the window doubles at each tick.
 * After that it doubles as long as each step pays, and then twice as many and half as many are tried in turns: the
 * larger must bring a tenth more, the smaller only nothing less, since each request under way costs memory, cache and
 * libcurl's walk over its connections. A store that refuses requests is asked more slowly, not by fewer connections
 * (pace.h). When it has no connection for us and serves those that stand (a server, a proxy, a translator of addresses
 * that bears few), the window becomes what stands, by halves at the most. While a quarter of what is under way waits
 * for the disk, it goes back to where it began: more connections would bring nothing sooner, and each costs the kernel
 * more than the last. */
#include "private.h"

enum {
    HOLD_TICKS = 15,  /* 1.5 s between trials once the first climb is over */
    TRIAL_TICKS = 5,  /* 0.5 s of rest are compared with 0.5 s of the trial: one tick says little */
    EPOCH_TICKS = 50, /* 5 s: so long is a quick first byte remembered, and as long again */
    QUEUED = 2,       /* times the quickest first byte: then requests wait for each other */
};

/* Bytes, and objects as if each were some more: a wall of small requests is work too. A refusal is none. */
static double work_done(struct hydrate *h)
{
    uint64_t requests = atomic_load(&h->requests), refused = atomic_load(&h->refused);
    return (double)atomic_load(&h->received) + 65536.0 * (double)(requests - min_u64(refused, requests));
}

/* Of this epoch and the one before; 0: not known. */
static uint64_t quickest(struct hydrate *h)
{
    uint64_t least = 0;
    for (size_t i = 0; i < h->lane_count; i++) {
        uint64_t ns = atomic_load(&h->lanes[i].quickest_ns);
        if (ns && (!least || ns < least))
            least = ns;
    }
    if (least && (!h->tune.quickest_ns || least < h->tune.quickest_ns))
        h->tune.quickest_ns = least;
    if (++h->tune.epoch == EPOCH_TICKS) {
        h->tune.epoch = 0;
        h->tune.quickest_ns = least;
        for (size_t i = 0; i < h->lane_count; i++)
            atomic_store(&h->lanes[i].quickest_ns, 0);
    }
    return h->tune.quickest_ns;
}

/* Little's law: what is under way is as much as comes in the time that one takes. */
static bool waits_for_the_way(struct hydrate *h, unsigned active, uint64_t now)
{
    uint64_t requests = atomic_load(&h->requests);
    uint64_t elapsed = now - h->tune.ticked_ns, ended = requests - h->tune.ticked_requests;
    uint64_t least = quickest(h);
    h->tune.ticked_ns = now;
    h->tune.ticked_requests = requests;
    return least && ended && active * elapsed / ended < QUEUED * least;
}

static unsigned grown(const struct hydrate *h, unsigned window)
{
    bool warned = h->tune.threshold && window >= h->tune.threshold;
    return warned ? window + (window + 15) / 16 : window * 2;
}

static void measure_anew(struct hydrate *h)
{
    h->tune.tried_from = h->tune.trial_ticks = 0;
    h->tune.before = h->tune.during = 0;
}

/* Back, or no further: nothing is tried for a while. */
static unsigned rest_at(struct hydrate *h, unsigned window)
{
    measure_anew(h);
    h->tune.has_rested = true;
    h->tune.hold = HOLD_TICKS;
    return window;
}

static unsigned climb(struct hydrate *h, unsigned window, double round, bool may_grow)
{
    if (h->tune.tried_from && round < h->tune.before * 1.05)
        return rest_at(h, h->tune.tried_from); /* the last step did not pay */
    if (!may_grow)
        return window;
    h->tune.tried_from = window;
    h->tune.before = round;
    return grown(h, window);
}

static unsigned begin_trial(struct hydrate *h, unsigned window, bool may_grow)
{
    bool may_shrink = window / 2 >= WINDOW_START;
    if (!may_grow && !may_shrink)
        return rest_at(h, window);
    h->tune.tried_from = window;
    h->tune.trial_ticks = 0;
    return may_shrink && (h->tune.tries_less || !may_grow) ? window / 2 : grown(h, window);
}

static unsigned end_trial(struct hydrate *h, unsigned window)
{
    unsigned from = h->tune.tried_from;
    double enough = window > from ? 1 + 0.1 * ((double)window / from - 1) : 0.97;
    bool pays = h->tune.during >= h->tune.before * enough;
    h->tune.tries_less = (window < from) == pays; /* the same again, or the other way */
    window = rest_at(h, pays ? window : from);
    h->tune.hold = pays ? 0 : HOLD_TICKS;
    return window;
}

static unsigned look_around(struct hydrate *h, unsigned window, double round, unsigned active, bool may_grow)
{
    bool is_full = active + 1 >= window;
    if (h->tune.hold > 0) {
        h->tune.hold--;
        return window;
    }
    if (!is_full) { /* it is not what limits us */
        window = h->tune.tried_from ? h->tune.tried_from : window;
        measure_anew(h);
        return window;
    }
    if (h->tune.tried_from > window && active > window)
        return window; /* a smaller one has no effect before what had begun has ended */
    unsigned tick = h->tune.trial_ticks++;
    if (!h->tune.tried_from) {
        h->tune.before += round;
        return tick + 1 < TRIAL_TICKS ? window : begin_trial(h, window, may_grow);
    }
    if (tick > 0) /* what ended in the first had begun before */
        h->tune.during += round;
    return tick < TRIAL_TICKS ? window : end_trial(h, window);
}

/* Of the connections that were tried since the last tick, were half turned away? That a connection breaks now and then
 * says nothing. From then on a lane gives up connections that it does not use: also while nothing moves, since all that
 * the server bears may be idle in lanes that have ended their work, and another lane wait for one. The window becomes
 * smaller only while bytes come over others: when none do, the store may be away. */
static bool is_turned_away(struct hydrate *h, double round)
{
    struct web_tried now = {0}, before = h->tune.tried;
    for (size_t i = 0; i < h->lane_count; i++) {
        now.connections += atomic_load(&h->lanes[i].connections);
        now.turned_away += atomic_load(&h->lanes[i].turned_away);
    }
    h->tune.tried = now;
    uint64_t away = now.turned_away - before.turned_away;
    bool are_few = away > 0 && 2 * away >= now.connections - before.connections;
    if (are_few)
        atomic_store(&h->is_crowded, true);
    return are_few && round > 0;
}

/* What stands, but half at the least: of a store that was away for a moment, much will stand again in the next. */
static unsigned standing(const struct hydrate *h, unsigned window)
{
    unsigned under_way = 0, waiting = 0;
    for (size_t i = 0; i < h->lane_count; i++) {
        under_way += atomic_load(&h->lanes[i].under_way);
        waiting += atomic_load(&h->lanes[i].waiting);
    }
    unsigned least = window / 2 > 2 ? window / 2 : 2, stand = under_way > waiting ? under_way - waiting : 0;
    return stand < least ? least : stand < window ? stand : window;
}

/* Of the active units, those that take a place. */
static unsigned placed(struct hydrate *h)
{
    unsigned refused = 0;
    for (size_t i = 0; i < h->lane_count; i++)
        refused += atomic_load(&h->lanes[i].refused);
    pthread_mutex_lock(&h->lock);
    unsigned active = h->active;
    pthread_mutex_unlock(&h->lock);
    return active > refused ? active - refused : 0;
}

/* h->lock held. The lower of what the store asks a reader to begin with, and of what it has served. */
static void limit_starts(struct hydrate *h, uint64_t now_ns)
{
    uint64_t ramp = rate_ramp(h->starts_at_first, now_ns - h->starts_since_ns) * STARTS_UNIT;
    uint64_t pace = (uint64_t)(h->pace.per_second * STARTS_UNIT);
    atomic_store(&h->starts.bytes_per_second, !ramp ? pace : !pace ? ramp : min_u64(ramp, pace));
}

bool window_answered(struct hydrate *h, uint64_t sent_ns, uint64_t now_ns, bool refused)
{
    if (refused)
        atomic_fetch_add(&h->refused, 1);
    else
        atomic_store_explicit(&h->served_ns, now_ns, memory_order_relaxed);
    if (!refused && atomic_load_explicit(&h->refused, memory_order_relaxed) == 0)
        return true;
    pthread_mutex_lock(&h->lock);
    pace_answered(&h->pace, sent_ns, now_ns, refused);
    limit_starts(h, now_ns);
    bool are_few = pace_refusals_are_few(&h->pace);
    pthread_mutex_unlock(&h->lock);
    return are_few;
}

void window_tick(struct hydrate *h, uint64_t now_ns)
{
    pthread_mutex_lock(&h->lock);
    limit_starts(h, now_ns);
    pthread_mutex_unlock(&h->lock);
    unsigned window = atomic_load(&h->window);
    unsigned most = h->o.concurrency_max ? h->o.concurrency_max : WINDOW_MAX;
    double work = work_done(h), round = work - (double)h->tune.last_received;
    h->tune.last_received = (uint64_t)work;
    unsigned active = placed(h);
    bool is_full = active + 1 >= window, waits = waits_for_the_way(h, active, now_ns);
    bool may_grow = is_full && window < most, turned_away = is_turned_away(h, round);
    if (turned_away) {
        window = h->tune.threshold = rest_at(h, standing(h, window));
    } else if (4 * atomic_load(&h->paused) > active) {
        window = rest_at(h, window > WINDOW_START ? (unsigned)max_u64(window - window / 4, WINDOW_START) : window);
    } else if (may_grow && waits && (!h->tune.threshold || h->tune.hold == 0)) {
        window = grown(h, window);
        measure_anew(h);
        h->tune.hold = 0;
    } else if (!h->tune.has_rested) {
        window = climb(h, window, round, may_grow);
    } else {
        window = look_around(h, window, round, active, may_grow);
    }
    atomic_store(&h->window, (unsigned)min_u64(window, most));
    if (is_full || turned_away || round == 0) /* a lane that waits tells what it has tried */
        lanes_kick(h);
}
