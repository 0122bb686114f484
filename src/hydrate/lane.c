/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "util/file.h"

/* Units without a request that are done before the loop looks at its sockets again. */
enum { INLINE_MAX = 256 };

/* The shares of all lanes add up to the window, even if it is smaller than the number of lanes. */
static unsigned lane_share(const struct hydrate_lane *l)
{
    unsigned size = atomic_load(&l->h->window.size), lanes = (unsigned)l->h->lane_count;
    return size / lanes + (l->number < size % lanes);
}

static bool is_directory_object(const struct index_entry *e)
{
    return e->path.len > 0 && e->path.ptr[e->path.len - 1] == '/';
}

static int check_path(const struct hydrate *h, const struct index_entry *e, struct err *err)
{
    struct str path = e->path;
    if (is_directory_object(e)) {
        if (e->size_bytes > 0)
            return err_set(err, ERR_INVALID, "its key ends in '/', but it has %llu bytes: a directory cannot hold them",
                           (unsigned long long)e->size_bytes);
        path.len--;
    }
    struct str first = str_sub(path, 0, sizeof TARGET_IN_PLACE_STATE - 1);
    bool ours = h->target->kind == TARGET_IN_PLACE && str_eq(first, STR(TARGET_IN_PLACE_STATE)) &&
                (path.len == first.len || path.ptr[first.len] == '/');
    if (ours)
        return err_set(err, ERR_INVALID, "the name is reserved while a hydration runs");
    return path_check(path, err);
}

static int write_inline(struct hydrate_lane *l, const struct hydrate_unit *u, struct err *err)
{
    if (is_directory_object(&u->entry))
        return directory_object_make(l, &u->entry, err);
    return small_write(l, u->id, &u->entry, NULL, err);
}

/* Whether it sends a request. If not, the unit has ended, or the parts of its object are queued. */
static bool begin_unit(struct hydrate_lane *l, const struct hydrate_unit *u)
{
    struct err err;
    enum hydrate_fault_kind kind = FAULT_LISTING;
    if (u->large) {
        job_begin(l, u);
        return true;
    }
    int r = check_path(l->h, &u->entry, &err);
    if (r < 0)
        err_advise(&err, CIS_KEY_NOT_A_PATH);
    else
        r = plan_check_size(u->entry.size_bytes, &err);
    if (r == 0) {
        kind = FAULT_OTHER;
        if (target_has_foreign(l->h->target, u->entry.path, object_file(&u->entry)))
            r = target_foreign_error(&err);
    }
    if (r == 0 && u->entry.size_bytes > 0) {
        if (!plan_is_small(u->entry.size_bytes))
            return large_begin(l, u->id, &u->entry);
        job_begin(l, u);
        return true;
    }
    if (r == 0 && (r = write_inline(l, u, &err)) < 0) {
        r = conflict_resolve(l, u->id, &u->entry, &kind, &err);
        if (r == 0)
            r = write_inline(l, u, &err);
    }
    if (r == 0)
        object_completed(l->h, u->id);
    else if (r < 0)
        object_failed(l->h, kind, u->entry.path, &err, 1);
    hydrate_queue_unit_ended(l);
    return false;
}

/* Whether the bandwidth limit delays the next request; a timer or the end of a request pumps again. More requests
 * would not be faster, and a kill loses what is in flight: half a second of the limit, or two seconds while connections
 * are too slow to reach it. */
static bool is_over_bandwidth(struct hydrate_lane *l)
{
    struct hydrate *h = l->h;
    uint64_t limit = atomic_load(&h->rate.units_per_second), in_flight = atomic_load(&h->progress.in_flight);
    uint64_t now = loop_now_ns(l->worker.loop), wait = rate_wait_ns(&h->rate, now);
    if (wait)
        loop_timer_set(l->worker.loop, &l->hold, wait);
    return wait || (limit && in_flight > 0 && in_flight >= (rate_is_exhausted(&h->rate, now) ? limit / 2 : 2 * limit));
}

/* Reserves the next request, unless the store's request rate delays it. */
static bool may_send(struct hydrate_lane *l)
{
    uint64_t wait = rate_take(&l->h->window.starts, STARTS_UNIT, loop_now_ns(l->worker.loop));
    if (wait)
        loop_timer_set(l->worker.loop, &l->hold, wait);
    return wait == 0;
}

/* Refused jobs take no place in the window while they wait, but a lane may hold no more of them than its share. */
static bool has_room(const struct hydrate_lane *l)
{
    unsigned share = lane_share(l), refused = atomic_load_explicit(&l->refused, memory_order_relaxed);
    return l->running_count - refused + l->summing < share && refused <= share;
}

/* One retry is always allowed, so that a lane without a share makes progress. */
static bool has_room_for_retry(const struct hydrate_lane *l)
{
    unsigned asking = l->running_count - atomic_load_explicit(&l->waiting, memory_order_relaxed);
    return asking == 0 || asking + l->summing < lane_share(l);
}

static void pump_due(struct hydrate_lane *l)
{
    while (!list_is_empty(&l->due) && !atomic_load(&l->h->stopping) && has_room_for_retry(l) && may_send(l))
        job_retry(list_pop(&l->due, struct hydrate_job, due));
}

static void report(struct hydrate_lane *l)
{
    struct web_connects tried = web_connects(l->worker.web);
    atomic_store_explicit(&l->under_way, l->running_count, memory_order_relaxed);
    atomic_store_explicit(&l->connections, tried.connections, memory_order_relaxed);
    atomic_store_explicit(&l->turned_away, tried.turned_away, memory_order_relaxed);
}

/* Where the server limits connections, a lane closes those that it does not use. */
static void limit_connections(struct hydrate_lane *l)
{
    bool works = l->running_count + l->summing > 0;
    if (atomic_load_explicit(&l->h->window.is_crowded, memory_order_relaxed))
        web_set_idle_max(l->worker.web, works ? (unsigned)max_u64(lane_share(l), 1) : 0);
}

/* Whether another unit may begin now. */
static bool begin_next(struct hydrate_lane *l, unsigned *at_once)
{
    struct hydrate *h = l->h;
    struct hydrate_unit u;
    struct err err;
    if (*at_once == INLINE_MAX) {
        lane_wake(l);
        return false;
    }
    if (!may_send(l))
        return false;
    int r = hydrate_queue_take(h, &u, &err);
    bool sends = r == 1 && begin_unit(l, &u);
    if (!sends)
        rate_give_back(&h->window.starts, STARTS_UNIT);
    *at_once += !sends;
    if (r < 0)
        run_failed(h, FAULT_OTHER, &err);
    if (r != 1)
        coordinator_wake(h);
    return r == 1;
}

static void lane_pump(struct hydrate_lane *l)
{
    unsigned at_once = 0;
    pump_due(l);
    while (list_is_empty(&l->due) && has_room(l) && !is_over_bandwidth(l) && !atomic_load(&l->h->stopping) &&
           begin_next(l, &at_once))
        continue;
    const struct hydrate_job *oldest = list_first(&l->running, struct hydrate_job, node);
    atomic_store(&l->oldest_id, oldest ? oldest->id + 1 : 0);
    report(l);
    limit_connections(l);
}

static void hold_over(struct timer *t)
{
    lane_pump(container_of(t, struct hydrate_lane, hold));
}

static void pump_at_tail(struct deferred *t)
{
    lane_pump(container_of(t, struct hydrate_lane, pump));
}

static void stop_all(struct hydrate_lane *l)
{
    l->is_stopped = true;
    struct hydrate_job *j;
    list_foreach (&l->running, j, node)
        job_stop(j);
    large_stop(l);
    if (l == &l->h->lanes[0])
        store_single_cancel(&l->h->lister.single);
}

static void deliver_wake(struct mail *m)
{
    struct hydrate_lane *l = container_of(m, struct hydrate_lane, wake);
    atomic_store(&l->is_woken, false);
    if (atomic_load(&l->h->ended))
        return; /* delivered by loop_free(): the lane's resources are freed already */
    if (atomic_load(&l->h->stopping) && !l->is_stopped)
        stop_all(l);
    lane_pump(l);
}

int lane_open(struct hydrate_lane *l, struct hydrate *h, unsigned number, struct err *err)
{
    l->h = h;
    l->number = number;
    l->wake.deliver = deliver_wake;
    l->pump.run = pump_at_tail;
    l->hold.fire = hold_over;
    tree_init(&l->tree, h->target->data, h->target->dir_mode);
    l->tree.uid = h->target->uid;
    l->tree.gid = h->target->gid;
    hash_init(&l->hash);
    sbuf_init(&l->key, 1 << 20);
    struct web_options web = {.stall_timeout_ns = h->o.stall_ns,
                              .connections_max = WINDOW_MAX / (unsigned)h->lane_count + 1};
    store_trust(h->o.sources[0].store, &web);
    int r = worker_init(&l->worker, number, h->threads, &web, !h->o.no_uring, err);
    l->worker_made = r == 0;
    return r;
}

void lane_close(struct hydrate_lane *l)
{
    struct hydrate_job *j;
    if (l->worker_made)
        worker_done(&l->worker);
    list_foreach (&l->free_jobs, j, node) {
        hash_done(&j->hash);
        free(j);
    }
    tree_done(&l->tree);
    hash_done(&l->hash);
    sbuf_done(&l->key);
}
