/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "util/thread.h"

enum { DEFERRED_MAX = 1 << 20 };

void hydrate_queue_init(struct hydrate_queue *q, unsigned ranks)
{
    pthread_mutex_init(&q->lock, NULL);
    plan_init(&q->plan, ranks);
}

void hydrate_queue_done(struct hydrate_queue *q)
{
    free(q->deferred);
    pthread_mutex_destroy(&q->lock);
}

void coordinator_wake(struct hydrate *h)
{
    if (!atomic_exchange(&h->coordinator.is_check_posted, true))
        loop_post(h->coordinator.loop, &h->coordinator.check);
}

void lane_wake(struct hydrate_lane *l)
{
    if (!atomic_exchange(&l->is_woken, true))
        loop_post(l->worker.loop, &l->wake);
}

void lanes_wake(struct hydrate *h)
{
    for (size_t i = 0; i < h->lane_count; i++)
        lane_wake(&h->lanes[i]);
}

void hydrate_queue_remove(struct hydrate_queue *q, struct hydrate_large *g)
{
    if (g->is_queued)
        list_remove(&q->larges, &g->node);
    g->is_queued = false;
}

bool hydrate_queue_next_part(struct hydrate_queue *q, struct hydrate_large **ret, uint32_t *ret_part)
{
    struct hydrate_large *g;
    while ((g = list_first(&q->larges, struct hydrate_large, node)) != NULL) {
        while (g->next < g->part_count && g->have[g->next])
            g->next++;
        if (g->next < g->part_count) {
            *ret = g;
            *ret_part = g->next++;
            g->running++;
            return true;
        }
        hydrate_queue_remove(q, g);
    }
    return false;
}

/* Until all is listed, a shard's selection may still change, and a relist may still fall back to the old catalog. A run
 * whose objects do not fit fails at the end of the listing. */
static bool waits_for_listing(const struct hydrate *h)
{
    bool is_void = atomic_load(&h->space.is_exceeded);
    return (h->o.shard.count > 1 || h->is_relisting || is_void) && !h->queue.is_listed;
}

static int next_unit(struct hydrate *h, struct hydrate_unit *ret, struct err *err)
{
    struct hydrate_queue *q = &h->queue;
    if (waits_for_listing(h))
        return 0;
    if (hydrate_queue_next_part(q, &ret->large, &ret->part)) {
        ret->id = ret->large->id;
        ret->entry = ret->large->entry;
        return 1;
    }
    if (q->is_second_pass) {
        if (q->deferred_next == q->deferred_count)
            return 0;
        ret->id = q->deferred[q->deferred_next++];
        int r = index_get(h->index, ret->id, &ret->entry, err);
        return r < 0 ? r : 1;
    }
    int r;
    do
        r = plan_next(&q->plan, h->index, &ret->id, &ret->entry, err);
    while (r == 1 && journal_is_whole(h->journal, ret->id));
    return r;
}

int hydrate_queue_take(struct hydrate *h, struct hydrate_unit *ret, struct err *err)
{
    *ret = (struct hydrate_unit){0};
    auto_lock(&h->queue.lock);
    int r = next_unit(h, ret, err);
    if (r == 1)
        h->queue.active++;
    return r;
}

void hydrate_queue_unit_ended(struct hydrate_lane *l)
{
    struct hydrate *h = l->h;
    pthread_mutex_lock(&h->queue.lock);
    bool last = --h->queue.active == 0;
    pthread_mutex_unlock(&h->queue.lock);
    if (last)
        coordinator_wake(h);
    loop_defer(l->worker.loop, &l->pump);
}

bool hydrate_queue_defer(struct hydrate_queue *q, uint64_t id)
{
    auto_lock(&q->lock);
    bool has_room = !q->is_second_pass && q->deferred_count < DEFERRED_MAX;
    if (has_room && q->deferred_count % 1024 == 0)
        q->deferred = xrealloc(q->deferred, q->deferred_count + 1024, sizeof *q->deferred);
    if (has_room)
        q->deferred[q->deferred_count++] = id;
    return has_room;
}

void hydrate_queue_listed(struct hydrate *h)
{
    phase_become(h, HYDRATE_FETCHING); /* before the coordinator can see the end and go on to VERIFYING */
    pthread_mutex_lock(&h->queue.lock);
    h->queue.is_listed = true;
    pthread_mutex_unlock(&h->queue.lock);
    lanes_wake(h);
    coordinator_wake(h);
}

bool hydrate_queue_is_drained(struct hydrate *h, bool stopping)
{
    struct hydrate_queue *q = &h->queue;
    pthread_mutex_lock(&q->lock);
    bool idle = q->active == 0 && q->is_listed;
    bool drained = idle && list_is_empty(&q->larges) && plan_is_exhausted(&q->plan, index_count(h->index));
    bool begins_pass = drained && !stopping && q->deferred_next < q->deferred_count;
    q->is_second_pass |= begins_pass;
    pthread_mutex_unlock(&q->lock);
    if (begins_pass)
        lanes_wake(h);
    return !begins_pass && (drained || (idle && stopping));
}
