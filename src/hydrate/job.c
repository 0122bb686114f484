/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a request: a slice, the GET, its writes, once more if it failed in passing. */
#include "private.h"
#include <assert.h>
#include <limits.h>

/* The longest wait of a GET that was refused by a store that serves most of them: the others' pace spares it. */
#define REFUSED_WAIT_NS (250 * NS_PER_MS)

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

static void backoff_over(struct timer *t)
{
    struct job *j = container_of(t, struct job, backoff);
    struct job **last = &j->lane->due;
    while (*last)
        last = &(*last)->next_due;
    j->next_due = NULL;
    *last = j;
    lane_pump(j->lane);
}

static void count_waiting(struct job *j, unsigned change)
{
    atomic_fetch_add_explicit(&j->lane->waiting, change, memory_order_relaxed);
    atomic_fetch_add_explicit(&j->lane->refused, j->refused ? change : 0, memory_order_relaxed);
}

void job_retry(struct job *j)
{
    count_waiting(j, UINT_MAX);
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
    count_waiting(j, 1);
    loop_timer_set(j->lane->worker.loop, &j->backoff, j->retry_ns);
    loop_at_tail(j->lane->worker.loop, &j->lane->pump); /* it may have given its place away */
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

/* A store that refuses everything ends the run when one request would have been given up, not each object in its turn.
 * Who allowed few attempts allowed for those of one object. */
#define OUTAGE_LEAST_NS (10 * NS_PER_SECOND)

static bool is_outage(const struct job *j, const struct store_reply *r, uint64_t now_ns)
{
    const struct hydrate *h = j->lane->h;
    uint64_t served_ns = atomic_load(&h->served_ns), since_ns = now_ns > served_ns ? now_ns - served_ns : 0;
    return r->slow_down && since_ns >= max_u64(store_patience_ns(object_store(h, &j->entry), r), OUTAGE_LEAST_NS);
}

static void end_in_outage(struct job *j, const struct store_reply *r)
{
    struct err err;
    char text[TIME_TEXT_MAX];
    uint64_t since_ns = loop_now_ns(j->lane->worker.loop) - atomic_load(&j->lane->h->served_ns);
    err_copy(&err, &r->err);
    err_wrap(&err, "the store has refused every GET for %s, the last one", duration_text(since_ns, text));
    err_advise(&err, 1526, "wait until the store serves again, or ask for fewer requests; the same command goes on");
    hydrate_fail(j->lane->h, &err);
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
    bool are_few = !r->first_byte_ns || window_answered(h, j->sent_ns, loop_now_ns(j->lane->worker.loop), r->slow_down);
    j->code = r->code;
    j->refused = r->slow_down;
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
        if (r->slow_down && r->retry_after_ns == 0 && are_few)
            j->retry_ns = min_u64(j->retry_ns, REFUSED_WAIT_NS);
        if (is_outage(j, r, loop_now_ns(j->lane->worker.loop)))
            end_in_outage(j, r);
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
    j->sent_ns = loop_now_ns(j->lane->worker.loop);
    rate_book(&h->starts, STARTS_UNIT, j->sent_ns);
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
                          .patient = j->attempts > 1,
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
    want_slice(j);
}

static void leave_due(struct job *j)
{
    struct job **at = &j->lane->due;
    while (*at && *at != j)
        at = &(*at)->next_due;
    if (*at)
        *at = j->next_due;
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
        leave_due(j);
        count_waiting(j, UINT_MAX);
        job_end(j);
        return;
    case JOB_DRAIN:
    case JOB_IDLE:
        return;
    }
}
