/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a request: a slice, the GET, its writes, once more if it failed in passing. */
#include "private.h"
#include <assert.h>
#include <limits.h>

static void want_slice(struct job *j);

static void wake(struct budget_waiter *w)
{
    struct job *j = container_of(w, struct job, waiter);
    atomic_store(&j->is_granted, true);
    loop_post(j->lane->worker.loop, &j->granted);
}

static void deliver_granted(struct mail *m)
{
    struct job *j = container_of(m, struct job, granted);
    atomic_store(&j->is_granted, false);
    if (!atomic_load(&j->lane->h->stopping)) {
        want_slice(j);
        return;
    }
    budget_forget(j->lane->h->budget, &j->waiter);
    job_end(j);
}

/* The window may be smaller by now than when this job began. One may always ask, lest a lane without a share stand. */
static bool is_crowd(const struct lane *l)
{
    unsigned asking = l->running_count - atomic_load_explicit(&l->waiting, memory_order_relaxed);
    return asking > 0 && asking >= lane_share(l);
}

static void backoff_over(struct timer *t)
{
    struct job *j = container_of(t, struct job, backoff);
    struct lane *l = j->lane;
    if (is_crowd(l)) {
        loop_timer_set(l->worker.loop, t, TICK_NS);
        return;
    }
    atomic_fetch_sub_explicit(&l->waiting, 1, memory_order_relaxed);
    want_slice(j);
}

static struct job *job_new(struct lane *l)
{
    struct job *j = l->free_jobs;
    if (j) {
        l->free_jobs = j->next;
    } else {
        j = xcalloc(1, sizeof *j);
        hash_init(&j->hash);
    }
    struct hash kept = j->hash;
    *j = (struct job){.lane = l, .hash = kept, .filling = -1};
    j->waiter.wake = wake;
    j->granted.deliver = deliver_granted;
    j->backoff.fire = backoff_over;
    for (size_t i = 0; i < JOB_SLICES; i++)
        j->slices[i].job = j;
    return j;
}

void job_free_slices(struct job *j)
{
    assert(j->busy == 0);
    for (size_t i = 0; i < JOB_SLICES; i++) {
        if (j->slices[i].bytes)
            budget_give(j->lane->h->budget, j->slices[i].bytes);
        j->slices[i].bytes = NULL;
        j->slices[i].fill = 0;
    }
    j->filling = -1;
}

void job_end(struct job *j)
{
    struct lane *l = j->lane;
    job_free_slices(j);
    if (j->large)
        large_part_dropped(l, j->large); /* no-op after it was done or failed: then large is NULL */
    if (j->prev)
        j->prev->next = j->next;
    else
        l->running = j->next;
    if (j->next)
        j->next->prev = j->prev;
    j->state = JOB_IDLE;
    j->next = l->free_jobs;
    l->free_jobs = j;
    l->running_count--;
    atomic_fetch_sub(&l->h->on_its_way, j->on_its_way);
    lane_unit_ended(l);
}

void job_object_failed(struct job *j, const struct err *err)
{
    struct lane *l = j->lane;
    struct large *g = j->large;
    if (fault_is_fatal(err)) {
        hydrate_object_failed(l->h, j->entry.path, err, j->attempts);
    } else if (g) {
        j->large = NULL;
        large_part_failed(l, g, err, j->attempts);
    } else {
        small_failed(l, &j->entry);
        hydrate_object_failed(l->h, j->entry.path, err, j->attempts);
    }
    job_end(j);
}

void job_mismatch(struct job *j, const struct digest *want, const struct digest *got)
{
    struct err err;
    if (!j->mismatched) {
        /* Once more: memory and networks do lie, rarely twice. */
        j->mismatched = true;
        job_free_slices(j);
        want_slice(j);
        return;
    }
    mismatch_set(&err, want, got);
    job_object_failed(j, &err);
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static void retry_or_fail(struct job *j)
{
    if (atomic_load(&j->lane->h->stopping)) {
        job_end(j);
        return;
    }
    if (!j->may_retry) {
        job_object_failed(j, &j->err);
        return;
    }
    job_free_slices(j);
    j->state = JOB_BACKOFF;
    atomic_fetch_add_explicit(&j->lane->waiting, 1, memory_order_relaxed);
    loop_timer_set(j->lane->worker.loop, &j->backoff, j->retry_ns);
}

void job_advance(struct job *j)
{
    struct err err;
    if (j->state != JOB_DRAIN || j->busy > 0)
        return;
    if (j->io_error) {
        err_sys(&err, j->io_error, "cannot write '%.*s'", (int)min_u64(j->entry.path.len, 200), j->entry.path.ptr);
        job_object_failed(j, &err);
    } else if (j->code < 0) {
        retry_or_fail(j);
    } else {
        part_whole(j);
    }
}

void job_pause(struct job *j, bool paused)
{
    if (j->paused != paused)
        atomic_fetch_add(&j->lane->h->paused, paused ? 1 : UINT_MAX);
    j->paused = paused;
}

static void note_first_byte(struct lane *l, uint64_t ns)
{
    uint64_t least = atomic_load_explicit(&l->quickest_ns, memory_order_relaxed);
    if (ns && (!least || ns < least))
        atomic_store_explicit(&l->quickest_ns, ns, memory_order_relaxed);
}

static void get_done(void *ctx, const struct store_reply *r)
{
    struct job *j = ctx;
    struct hydrate *h = j->lane->h;
    note_first_byte(j->lane, r->first_byte_ns);
    j->get = NULL;
    job_pause(j, false);
    atomic_fetch_add(&h->requests, r->requests - r->turned_away); /* which reached nobody */
    atomic_fetch_add(&h->hedged, r->hedged);
    if (r->slow_down)
        atomic_store(&h->slowed, true);
    j->code = r->code;
    if (r->turned_away) {
        j->attempts--;
        j->started_ns = loop_now_ns(j->lane->worker.loop);
    }
    if (j->is_other) {
        j->code = -ERR_CHANGED;
        j->may_retry = false;
    } else if (r->code < 0) {
        uint64_t elapsed = loop_now_ns(j->lane->worker.loop) - j->started_ns;
        j->err = r->err;
        j->may_retry = store_retry_delay(object_store(h, &j->entry), r, j->attempts, elapsed, &j->retry_ns);
    }
    if (j->code == 0 && !j->large) {
        small_whole(j, &r->object.digest);
        return;
    }
    if (j->code == 0)
        part_flush(j);
    j->state = JOB_DRAIN;
    job_advance(j);
}

static void get_head(void *ctx, const struct object *told)
{
    struct job *j = ctx;
    j->is_other = large_hold(j->large, told, &j->err) < 0;
}

static int get_data(void *ctx, const char *bytes, size_t len)
{
    struct job *j = ctx;
    if (j->is_other)
        return -ERR_CHANGED;
    return j->large ? part_data(j, bytes, len) : small_data(j, bytes, len);
}

static void get(struct job *j)
{
    struct hydrate *h = j->lane->h;
    struct object object;
    object_of_entry(j->lane, &j->entry, &object);
    j->attempts++;
    j->state = JOB_GET;
    j->received = j->skip = 0;
    j->is_other = false;
    j->io_error = 0;
    j->offset = 0;
    j->len = j->entry.size_bytes;
    if (j->large) {
        plan_part(j->entry.size_bytes, j->part, &j->offset, &j->len);
        hash_begin(&j->hash, hash_combines(j->large->want.kind) ? j->large->want.kind : HASH_NONE);
        j->filling = 0;
        j->slices[0].offset = j->offset;
    }
    struct store_get g = {.object = &object,
                          .offset = j->offset,
                          .len = j->len,
                          .rate = h->o.bytes_per_second ? &h->rate : NULL,
                          .ctx = j,
                          .on_head = j->large && !j->large->is_pinned ? get_head : NULL,
                          .on_data = get_data,
                          .on_done = get_done};
    j->get = store_get(object_store(h, &j->entry), &j->lane->worker, &g);
}

static void want_slice(struct job *j)
{
    j->state = JOB_SLICE;
    size_t want = j->large ? SLICE_BYTES : (size_t)j->entry.size_bytes;
    void *bytes = budget_take(j->lane->h->budget, want, &j->waiter);
    if (!bytes)
        return;
    j->slices[0].bytes = bytes;
    get(j);
}

void job_begin(struct lane *l, uint64_t id, const struct index_entry *e, struct large *large, uint32_t part)
{
    struct job *j = job_new(l);
    j->id = id;
    j->entry = *e;
    j->large = large;
    j->part = part;
    j->started_ns = loop_now_ns(l->worker.loop);
    j->next = l->running;
    if (l->running)
        l->running->prev = j;
    l->running = j;
    l->running_count++;
    uint64_t offset;
    j->on_its_way = e->size_bytes;
    if (large)
        plan_part(e->size_bytes, part, &offset, &j->on_its_way);
    atomic_fetch_add(&l->h->on_its_way, j->on_its_way);
    rate_book(&l->h->starts, 1, j->started_ns);
    want_slice(j);
}

void job_stop(struct job *j)
{
    switch (j->state) {
    case JOB_SLICE:
        budget_forget(j->lane->h->budget, &j->waiter);
        /* A mail that is on its way ends the job when it comes. */
        if (!atomic_load(&j->is_granted))
            job_end(j);
        return;
    case JOB_GET:
        if (j->get)
            store_cancel(j->get);
        return;
    case JOB_BACKOFF:
        loop_timer_cancel(j->lane->worker.loop, &j->backoff);
        atomic_fetch_sub_explicit(&j->lane->waiting, 1, memory_order_relaxed);
        job_end(j);
        return;
    case JOB_DRAIN:
    case JOB_IDLE:
        return;
    }
}
