/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the number of concurrent requests: as many as still make the run faster.
 *
 * While answers take hardly longer than the quickest first byte, latency is network-bound, and the window doubles at
 * each round trip, later at each tick. Then it doubles as long as each step pays. At rest it tries twice as many and
 * half as many in turn: the larger must bring a tenth more, the smaller must only bring no less, since each request
 * costs memory and libcurl's walk over its connections. A store that refuses requests is sent fewer a second, over as
 * many connections (store/pace.h). When a server refuses connections while others work, the window becomes the number
 * of open connections, by halves at most. While a quarter of the requests wait for the disk, the window shrinks towards
 * its start. */
#include "private.h"
#include "util/thread.h"

enum {
    HOLD_TICKS = 15,  /* 1.5 s between trials after the first climb */
    TRIAL_TICKS = 5,  /* compares 0.5 s at rest with 0.5 s of the trial: one tick varies too much */
    EPOCH_TICKS = 50, /* a quick first byte counts for 5 to 10 s */
    QUEUED = 2,       /* times the quickest first byte: above this, requests wait for each other */
};

void window_init(struct hydrate *h)
{
    struct hydrate_window *w = &h->window;
    unsigned most = h->o.concurrency_max ? h->o.concurrency_max : WINDOW_MAX;
    pthread_mutex_init(&w->lock, NULL);
    for (size_t i = 0; i < h->o.source_count; i++)
        w->starts_initial = max_u64(w->starts_initial, store_reads_at_first(h->o.sources[i].store));
    w->starts_since_ns = clock_now_ns();
    w->starts.slack_ns = STARTS_SLACK_NS;
    atomic_store(&w->starts.units_per_second, w->starts_initial * STARTS_UNIT);
    atomic_store(&w->size, (unsigned)min_u64(WINDOW_START, most));
}

/* Bytes, plus 64 KiB for each request: many small requests are work too. Refused requests do not count. */
static double work_done(struct hydrate *h)
{
    uint64_t requests = atomic_load(&h->progress.requests), refused = atomic_load(&h->window.refused);
    return (double)atomic_load(&h->progress.received) + 65536.0 * (double)(requests - min_u64(refused, requests));
}

/* The quickest first byte since the epoch began; 0: unknown. */
static uint64_t quickest_of_epoch(struct hydrate *h)
{
    uint64_t least = 0;
    for (size_t i = 0; i < h->lane_count; i++) {
        uint64_t ns = atomic_load(&h->lanes[i].quickest_ns);
        if (ns && (!least || ns < least))
            least = ns;
    }
    return least;
}

/* Keeps the quickest first byte of this epoch and the one before. */
static void note_quickest(struct hydrate *h)
{
    struct hydrate_window *w = &h->window;
    uint64_t least = quickest_of_epoch(h);
    if (least && (!w->quickest_ns || least < w->quickest_ns))
        w->quickest_ns = least;
    if (++w->epoch_ticks == EPOCH_TICKS) {
        w->epoch_ticks = 0;
        w->quickest_ns = least;
        for (size_t i = 0; i < h->lane_count; i++)
            atomic_store(&h->lanes[i].quickest_ns, 0);
    }
}

/* Whether a request takes hardly longer than `least_ns`. By Little's law, mean latency is active requests over
 * completions per second. */
static bool is_network_bound(const struct window_mark *since, const struct window_mark *now, unsigned active,
                             uint64_t least_ns)
{
    uint64_t ended = now->requests - since->requests;
    return least_ns && ended && active * (now->ns - since->ns) / ended < QUEUED * least_ns;
}

static unsigned grown(const struct hydrate_window *w, unsigned size)
{
    bool is_above = w->threshold && size >= w->threshold;
    return is_above ? size + (size + 15) / 16 : size * 2;
}

static void restart_trial(struct hydrate_window *w)
{
    w->tried_from = w->trial_ticks = 0;
    w->before = w->during = 0;
}

/* Ends the trial, and starts none for a while. */
static unsigned rest_at(struct hydrate_window *w, unsigned size)
{
    restart_trial(w);
    w->has_rested = true;
    w->hold_ticks = HOLD_TICKS;
    return size;
}

static unsigned climb(struct hydrate_window *w, unsigned size, double work, bool may_grow)
{
    if (w->tried_from && work < w->before * 1.05)
        return rest_at(w, w->tried_from); /* the last step did not pay */
    if (!may_grow)
        return size;
    w->tried_from = size;
    w->before = work;
    return grown(w, size);
}

static unsigned begin_trial(struct hydrate_window *w, unsigned size, bool may_grow)
{
    bool may_shrink = size / 2 >= WINDOW_START;
    if (!may_grow && !may_shrink)
        return rest_at(w, size);
    w->tried_from = size;
    w->trial_ticks = 0;
    return may_shrink && (w->tries_less || !may_grow) ? size / 2 : grown(w, size);
}

static unsigned end_trial(struct hydrate_window *w, unsigned size)
{
    unsigned from = w->tried_from;
    double enough = size > from ? 1 + 0.1 * ((double)size / from - 1) : 0.97;
    bool pays = w->during >= w->before * enough;
    w->tries_less = (size < from) == pays; /* the same direction again, or the other one */
    size = rest_at(w, pays ? size : from);
    w->hold_ticks = pays ? 0 : HOLD_TICKS;
    return size;
}

static unsigned probe(struct hydrate_window *w, unsigned size, double work, unsigned active, bool may_grow)
{
    if (w->hold_ticks > 0) {
        w->hold_ticks--;
        return size;
    }
    if (active + 1 < size) { /* the window is not the limit */
        size = w->tried_from ? w->tried_from : size;
        restart_trial(w);
        return size;
    }
    if (w->tried_from > size && active > size)
        return size; /* a smaller window has no effect until older requests have ended */
    unsigned tick = w->trial_ticks++;
    if (!w->tried_from) {
        w->before += work;
        return tick + 1 < TRIAL_TICKS ? size : begin_trial(w, size, may_grow);
    }
    if (tick > 0) /* requests that ended in the first tick began before the trial */
        w->during += work;
    return tick < TRIAL_TICKS ? size : end_trial(w, size);
}

/* Whether half of the connections that were tried since the last tick were refused. From then on a lane closes
 * connections that it does not use, even while nothing moves: idle lanes may hold all that the server allows. The
 * window shrinks only while other connections move bytes: else the store may be down. */
static bool is_turned_away(struct hydrate *h, double work)
{
    struct web_connects now = {0}, before = h->window.tried;
    for (size_t i = 0; i < h->lane_count; i++) {
        now.connections += atomic_load(&h->lanes[i].connections);
        now.turned_away += atomic_load(&h->lanes[i].turned_away);
    }
    h->window.tried = now;
    uint64_t away = now.turned_away - before.turned_away;
    bool is_crowded = away > 0 && 2 * away >= now.connections - before.connections;
    if (is_crowded)
        atomic_store(&h->window.is_crowded, true);
    return is_crowded && work > 0;
}

/* The open connections, but at least half the window: after a short outage most will open again. */
static unsigned open_connections(const struct hydrate *h, unsigned size)
{
    unsigned running = 0, waiting = 0;
    for (size_t i = 0; i < h->lane_count; i++) {
        running += atomic_load(&h->lanes[i].under_way);
        waiting += atomic_load(&h->lanes[i].waiting);
    }
    unsigned least = size / 2 > 2 ? size / 2 : 2, open = running > waiting ? running - waiting : 0;
    return open < least ? least : open < size ? open : size;
}

/* The active units that count towards the window: refused ones do not. */
static unsigned active_units(struct hydrate *h)
{
    unsigned refused = 0;
    for (size_t i = 0; i < h->lane_count; i++)
        refused += atomic_load(&h->lanes[i].refused);
    auto_lock(&h->queue.lock);
    unsigned active = h->queue.active;
    return active > refused ? active - refused : 0;
}

/* w->lock held. The lower of the rate that the store asks of new readers, and the rate that it has served. */
static void limit_starts(struct hydrate_window *w, uint64_t now_ns)
{
    uint64_t ramp = rate_ramp(w->starts_initial, now_ns - w->starts_since_ns) * STARTS_UNIT;
    uint64_t pace = (uint64_t)(w->pace.per_second * STARTS_UNIT);
    pace_apply(&w->starts, STARTS_UNIT, !ramp ? pace : !pace ? ramp : min_u64(ramp, pace), now_ns);
}

void window_served(struct hydrate_window *w, uint64_t now_ns)
{
    atomic_store_explicit(&w->served_ns, now_ns, memory_order_relaxed);
    if (atomic_load_explicit(&w->refused_since_ns, memory_order_relaxed))
        atomic_store_explicit(&w->refused_since_ns, 0, memory_order_relaxed);
}

uint64_t window_refused(struct hydrate_window *w, uint64_t began_ns, uint64_t now_ns)
{
    uint64_t since = 0, first = max_u64(began_ns, atomic_load(&w->served_ns));
    if (atomic_compare_exchange_strong(&w->refused_since_ns, &since, first))
        since = first;
    return now_ns > since ? now_ns - since : 0;
}

void window_answered(struct hydrate_window *w, uint64_t sent_ns, uint64_t now_ns, bool refused)
{
    if (refused)
        atomic_fetch_add(&w->refused, 1);
    else
        window_served(w, now_ns);
    auto_lock(&w->lock);
    pace_answered(&w->pace, sent_ns, now_ns, refused);
    limit_starts(w, now_ns);
}

bool window_refusals_are_few(struct hydrate_window *w)
{
    auto_lock(&w->lock);
    return pace_refusals_are_few(&w->pace);
}

void window_tick(struct hydrate *h, uint64_t now_ns)
{
    struct hydrate_window *w = &h->window;
    pthread_mutex_lock(&w->lock);
    limit_starts(w, now_ns);
    pthread_mutex_unlock(&w->lock);
    unsigned size = atomic_load(&w->size), most = h->o.concurrency_max ? h->o.concurrency_max : WINDOW_MAX;
    double total = work_done(h), work = total - (double)w->last_work;
    w->last_work = (uint64_t)total;
    unsigned active = active_units(h);
    struct window_mark now = {now_ns, atomic_load(&h->progress.requests)};
    note_quickest(h);
    bool is_full = active + 1 >= size, network_bound = is_network_bound(&w->tick, &now, active, w->quickest_ns);
    w->tick = now;
    bool may_grow = is_full && size < most, turned_away = is_turned_away(h, work);
    if (turned_away) {
        size = w->threshold = rest_at(w, open_connections(h, size));
    } else if (4 * atomic_load(&w->paused) > active) {
        size = rest_at(w, size > WINDOW_START ? (unsigned)max_u64(size - size / 4, WINDOW_START) : size);
    } else if (may_grow && network_bound && (!w->threshold || w->hold_ticks == 0)) {
        size = grown(w, size);
        restart_trial(w);
        w->hold_ticks = 0;
    } else if (!w->has_rested) {
        size = climb(w, size, work, may_grow);
    } else {
        size = probe(w, size, work, active, may_grow);
    }
    atomic_store(&w->size, (unsigned)min_u64(size, most));
    if (is_full || turned_away || work == 0) /* a lane that waits reports what it has tried */
        lanes_wake(h);
}

uint64_t window_climb(struct hydrate *h, uint64_t now_ns)
{
    struct hydrate_window *w = &h->window;
    struct window_mark now = {now_ns, atomic_load(&h->progress.requests)};
    unsigned size = atomic_load(&w->size), most = h->o.concurrency_max ? h->o.concurrency_max : WINDOW_MAX;
    unsigned active = active_units(h);
    if (w->has_rested || w->threshold || size >= most || atomic_load(&w->refused))
        return 0;
    if (active + 1 < size) { /* the window is not the limit */
        w->round = now;
        return TICK_NS;
    }
    if (now.requests - w->round.requests < size)
        return ROUND_NS;
    if (is_network_bound(&w->round, &now, active, quickest_of_epoch(h))) {
        atomic_store(&w->size, min_u64(2 * size, most));
        restart_trial(w);
        lanes_wake(h);
    }
    w->round = now;
    return ROUND_NS;
}
