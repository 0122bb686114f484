/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that takes units and turns them into jobs, as many as its share of the window. */
#include "private.h"
#include "util/file.h"

/* What needs no request is done at once; so many of them, then the loop looks at its sockets again. */
enum { INLINE_MAX = 256 };

struct unit {
    uint64_t id;
    struct index_entry entry;
    struct large *large;
    uint32_t part;
};

/* The shares of all lanes are the window, also where it has less than one for each. */
unsigned lane_share(const struct lane *l)
{
    unsigned window = atomic_load(&l->h->window), lanes = (unsigned)l->h->lane_count;
    return window / lanes + (l->number < window % lanes);
}

/* h->lock held. */
static int take_deferred(struct hydrate *h, struct unit *ret, struct err *err)
{
    ret->id = h->deferred[h->deferred_next++];
    int r = index_get(h->index, ret->id, &ret->entry, err);
    return r < 0 ? r : 1;
}

/* 1: a unit was taken and counts as active. */
static int take_unit(struct hydrate *h, struct unit *ret, struct err *err)
{
    int r;
    *ret = (struct unit){0};
    pthread_mutex_lock(&h->lock);
    if ((h->o.shard.count > 1 || h->lists_anew) && !h->listing_over) {
        /* what is dealt so far is not durable yet, and may be dealt otherwise after a crash; or an older listing is
         * still the one that holds */
        r = 0;
    } else if (large_take_part(h, &ret->large, &ret->part)) {
        r = 1;
    } else if (h->second_round) {
        r = h->deferred_next < h->deferred_count;
        if (r)
            r = take_deferred(h, ret, err);
    } else {
        do
            r = plan_next(&h->plan, h->index, &ret->id, &ret->entry, err);
        while (r == 1 && journal_is_whole(h->journal, ret->id));
    }
    if (r == 1)
        h->active++;
    pthread_mutex_unlock(&h->lock);
    return r;
}

void lane_unit_ended(struct lane *l)
{
    struct hydrate *h = l->h;
    pthread_mutex_lock(&h->lock);
    bool last = --h->active == 0;
    pthread_mutex_unlock(&h->lock);
    if (last)
        driver_nudge(h);
    loop_at_tail(l->worker.loop, &l->pump);
}

static bool is_marker(const struct index_entry *e)
{
    return e->path.len > 0 && e->path.ptr[e->path.len - 1] == '/';
}

static int check_path(const struct hydrate *h, const struct index_entry *e, struct err *err)
{
    struct str path = e->path;
    if (is_marker(e)) {
        if (e->size_bytes > 0)
            return err_set(err, ERR_INVALID, "its name ends in '/', but it has %llu bytes: a folder cannot hold them",
                           (unsigned long long)e->size_bytes);
        path.len--;
    }
    struct str first = str_sub(path, 0, sizeof TARGET_IN_PLACE_STATE - 1);
    bool ours = h->target->kind == TARGET_IN_PLACE && str_eq(first, STR(TARGET_IN_PLACE_STATE)) &&
                (path.len == first.len || path.ptr[first.len] == '/');
    if (ours)
        return err_set(err, ERR_INVALID, "the name is taken while a hydration runs");
    return path_check(path, err);
}

static int write_inline(struct lane *l, const struct unit *u, struct err *err)
{
    if (is_marker(&u->entry))
        return marker_make(l, &u->entry, err);
    return small_write(l, u->id, &u->entry, NULL, err);
}

/* A unit that needs no request. */
static void end_inline(struct lane *l, const struct unit *u, int r, const struct err *err)
{
    if (r == 0)
        object_is_whole(l->h, u->id);
    else if (r < 0)
        hydrate_object_failed(l->h, u->entry.path, err, 1);
    lane_unit_ended(l);
}

/* True: nothing is left to wait for. */
static bool begin_unit(struct lane *l, const struct unit *u)
{
    struct err err;
    if (u->large) {
        job_begin(l, u->large->id, &u->large->entry, u->large, u->part);
        return false;
    }
    int r = check_path(l->h, &u->entry, &err);
    if (r < 0)
        err_advise(&err, 1512, "exclude it, or give the object another name");
    else
        r = plan_check_size(u->entry.size_bytes, &err);
    if (r == 0 && target_is_taken(l->h->target, u->entry.path, object_file(&u->entry)))
        r = target_taken(&err);
    if (r == 0 && u->entry.size_bytes > 0) {
        if (plan_is_small(u->entry.size_bytes))
            job_begin(l, u->id, &u->entry, NULL, 0);
        else
            large_begin(l, u->id, &u->entry);
        return false;
    }
    if (r == 0 && (r = write_inline(l, u, &err)) < 0) {
        r = conflict_settle(l, u->id, &u->entry, &err);
        if (r == 0)
            r = write_inline(l, u, &err);
    }
    end_inline(l, u, r, &err);
    return true;
}

static void hold_over(struct timer *t)
{
    lane_pump(container_of(t, struct lane, hold));
}

/* Must the next request wait? What brings us back is a timer, or the end of what is on its way. Under a cap more
 * requests bring nothing sooner, and a kill loses what is on its way: half a second's worth, or two while connections
 * are too slow to reach the cap. What came in one piece was booked and not held back: the next one waits for it. */
static bool must_wait(struct lane *l)
{
    struct hydrate *h = l->h;
    uint64_t cap = atomic_load(&h->rate.bytes_per_second), on_its_way = atomic_load(&h->on_its_way);
    uint64_t now = loop_now_ns(l->worker.loop), wait = rate_wait_ns(&h->rate, now);
    if (wait)
        loop_timer_set(l->worker.loop, &l->hold, wait);
    return wait || (cap && on_its_way > 0 && on_its_way >= (rate_is_spent(&h->rate, now) ? cap / 2 : 2 * cap));
}

/* Does the store want the next GET later? */
static bool is_paced(struct lane *l)
{
    uint64_t wait = rate_wait_ns(&l->h->starts, loop_now_ns(l->worker.loop));
    if (wait)
        loop_timer_set(l->worker.loop, &l->hold, wait);
    return wait > 0;
}

/* What the store refused takes no place of the window's while it waits, but a lane has no more of it than that. */
static bool has_room(const struct lane *l)
{
    unsigned share = lane_share(l), refused = atomic_load_explicit(&l->refused, memory_order_relaxed);
    return l->running_count - refused + l->summing < share && refused <= share;
}

/* One may always ask, lest a lane without a share stand. */
static bool has_room_again(const struct lane *l)
{
    unsigned asking = l->running_count - atomic_load_explicit(&l->waiting, memory_order_relaxed);
    return asking == 0 || asking + l->summing < lane_share(l);
}

static void pump_due(struct lane *l)
{
    while (l->due && !atomic_load(&l->h->stopping) && has_room_again(l) && !is_paced(l)) {
        struct job *j = l->due;
        l->due = j->next_due;
        job_retry(j);
    }
}

static void tell_window(struct lane *l)
{
    struct web_tried tried = web_tried(l->worker.web);
    atomic_store_explicit(&l->under_way, l->running_count, memory_order_relaxed);
    atomic_store_explicit(&l->connections, tried.connections, memory_order_relaxed);
    atomic_store_explicit(&l->turned_away, tried.turned_away, memory_order_relaxed);
}

/* Where connections are few, those that a lane does not use now are another's. */
static void keep_connections(struct lane *l)
{
    bool works = l->running_count + l->summing > 0;
    if (atomic_load_explicit(&l->h->is_crowded, memory_order_relaxed))
        web_keep(l->worker.web, works ? (unsigned)max_u64(lane_share(l), 1) : 0);
}

void lane_pump(struct lane *l)
{
    struct hydrate *h = l->h;
    unsigned at_once = 0;
    pump_due(l);
    while (!l->due && has_room(l) && !is_paced(l) && !must_wait(l) && !atomic_load(&h->stopping)) {
        struct unit u;
        struct err err;
        if (at_once == INLINE_MAX) {
            lane_kick(l);
            break;
        }
        int r = take_unit(h, &u, &err);
        if (r < 0)
            hydrate_fail(h, &err);
        if (r != 1) {
            driver_nudge(h);
            break;
        }
        at_once += begin_unit(l, &u);
    }
    const struct job *oldest = l->running;
    while (oldest && oldest->next)
        oldest = oldest->next;
    atomic_store(&l->oldest_id, oldest ? oldest->id + 1 : 0);
    tell_window(l);
    keep_connections(l);
}

static void run_pump(struct tail *t)
{
    lane_pump(container_of(t, struct lane, pump));
}

static void stop_all(struct lane *l)
{
    l->is_stopped = true;
    for (struct job *j = l->running, *next; j; j = next) {
        next = j->next;
        job_stop(j);
    }
    large_stop(l);
    if (l == &l->h->lanes[0])
        feed_stop(l->h);
}

static void deliver_kick(struct mail *m)
{
    struct lane *l = container_of(m, struct lane, kick);
    atomic_store(&l->is_kicked, false);
    if (atomic_load(&l->h->ended))
        return; /* delivered by loop_free(): what a lane works with is gone already */
    if (atomic_load(&l->h->stopping) && !l->is_stopped)
        stop_all(l);
    lane_pump(l);
}

void lane_kick(struct lane *l)
{
    if (!atomic_exchange(&l->is_kicked, true))
        loop_post(l->worker.loop, &l->kick);
}

void lanes_kick(struct hydrate *h)
{
    for (size_t i = 0; i < h->lane_count; i++)
        lane_kick(&h->lanes[i]);
}

int lane_open(struct lane *l, struct hydrate *h, unsigned number, struct err *err)
{
    l->h = h;
    l->number = number;
    l->kick.deliver = deliver_kick;
    l->pump.run = run_pump;
    l->hold.fire = hold_over;
    tree_init(&l->tree, h->target->data, h->target->dir_mode);
    l->tree.uid = h->target->uid;
    l->tree.gid = h->target->gid;
    hash_init(&l->hash);
    sbuf_init(&l->key, 1 << 20);
    struct web_options web = {.stall_timeout_ns = h->o.stall_ns,
                              .connections_max = WINDOW_MAX / (unsigned)h->lane_count + 1};
    store_trust(h->o.sources[0].store, &web);
    int r = worker_init(&l->worker, number, h->pool, &web, !h->o.no_uring, err);
    l->worker_made = r == 0;
    return r;
}

void lane_close(struct lane *l)
{
    if (l->worker_made)
        worker_done(&l->worker);
    for (struct job *j = l->free_jobs, *next; j; j = next) {
        next = j->next;
        hash_done(&j->hash);
        free(j);
    }
    tree_done(&l->tree);
    hash_done(&l->hash);
    sbuf_done(&l->key);
}
