/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include <limits.h>

/* Longest wait after a refused GET, as long as the store serves most GETs: store/pace.h limits the rate. */
#define REFUSED_WAIT_NS (250 * NS_PER_MS)

/* The only function that changes the state. */
static void job_become(struct hydrate_job *j, enum hydrate_job_state state)
{
    static const unsigned char may_follow[] = {
        [HYDRATE_JOB_IDLE] = 1 << HYDRATE_JOB_SLICE,
        [HYDRATE_JOB_SLICE] = 1 << HYDRATE_JOB_GET | 1 << HYDRATE_JOB_IDLE,
        [HYDRATE_JOB_GET] = 1 << HYDRATE_JOB_DRAIN | 1 << HYDRATE_JOB_SLICE | 1 << HYDRATE_JOB_IDLE,
        [HYDRATE_JOB_DRAIN] = 1 << HYDRATE_JOB_BACKOFF | 1 << HYDRATE_JOB_IDLE,
        [HYDRATE_JOB_BACKOFF] = 1 << HYDRATE_JOB_SLICE | 1 << HYDRATE_JOB_IDLE,
    };
    assert(may_follow[j->state] >> state & 1);
    j->state = state;
}

static void count_waiting(struct hydrate_job *j, unsigned change)
{
    atomic_fetch_add_explicit(&j->lane->waiting, change, memory_order_relaxed);
    atomic_fetch_add_explicit(&j->lane->refused, j->answer.refused ? change : 0, memory_order_relaxed);
}

void job_free_slices(struct hydrate_job *j)
{
    assert(j->busy == 0);
    for (size_t i = 0; i < HYDRATE_JOB_SLICES; i++) {
        if (j->slices[i].bytes)
            budget_return(j->lane->h->budget, j->slices[i].bytes);
        j->slices[i].bytes = NULL;
        j->slices[i].fill = 0;
    }
    j->filling = -1;
}

static void job_release(struct hydrate_job *j)
{
    struct hydrate_lane *l = j->lane;
    job_free_slices(j);
    if (j->large) /* a part that is done or failed has none */
        large_part_dropped(l, j->large);
    list_remove(&l->running, &j->node);
    job_become(j, HYDRATE_JOB_IDLE);
    list_add_first(&l->free_jobs, &j->node);
    l->running_count--;
    atomic_fetch_sub(&l->h->progress.in_flight, j->in_flight);
    hydrate_queue_unit_ended(l);
}

static void job_object_failed(struct hydrate_job *j, enum hydrate_fault_kind kind, const struct err *err)
{
    struct hydrate_lane *l = j->lane;
    struct hydrate_large *g = j->large;
    if (g && !fault_is_fatal(err)) {
        j->large = NULL;
        large_part_failed(l, g, kind, err, j->tries.count);
    } else {
        if (!fault_is_fatal(err))
            small_discard(l, &j->entry);
        object_failed(l->h, kind, j->entry.path, err, j->tries.count);
    }
    job_release(j);
}

/* ---- the answer, when all writes have ended ---------------------------------------------------------------------- */

static void retry_or_fail(struct hydrate_job *j)
{
    if (atomic_load(&j->lane->h->stopping)) {
        job_release(j);
        return;
    }
    if (!j->answer.may_retry) {
        job_object_failed(j, j->answer.kind, &j->answer.err);
        return;
    }
    job_free_slices(j);
    job_become(j, HYDRATE_JOB_BACKOFF);
    count_waiting(j, 1);
    loop_timer_set(j->lane->worker.loop, &j->backoff, j->answer.retry_ns);
    loop_defer(j->lane->worker.loop, &j->lane->pump); /* another job may take its place */
}

static void part_complete(struct hydrate_job *j)
{
    struct hydrate_large *g = j->large;
    struct digest d = {.kind = HASH_NONE};
    if (j->hash.kind != HASH_NONE)
        hash_end(&j->hash, &d);
    j->large = NULL;
    large_part_done(j->lane, g, j->part, &d);
    job_release(j);
}

static void job_advance(struct hydrate_job *j)
{
    struct err err;
    if (j->state != HYDRATE_JOB_DRAIN || j->busy > 0)
        return;
    if (j->io_error) {
        err_sys(&err, j->io_error, "cannot write '%.*s'", (int)min_u64(j->entry.path.len, 200), j->entry.path.ptr);
        job_object_failed(j, FAULT_OTHER, &err);
    } else if (j->answer.code < 0) {
        retry_or_fail(j);
    } else {
        part_complete(j);
    }
}

/* ---- the bytes of a part: slices that are aligned for O_DIRECT --------------------------------------------------- */

/* Counts only: the caller pauses or resumes the GET. */
static void job_pause(struct hydrate_job *j, bool paused)
{
    if (j->paused != paused)
        atomic_fetch_add(&j->lane->h->window.paused, paused ? 1 : UINT_MAX);
    j->paused = paused;
}

static void written(struct disk_job *d)
{
    struct job_slice *s = container_of(d, struct job_slice, io);
    struct hydrate_job *j = s->job;
    struct hydrate *h = j->lane->h;
    s->busy = false;
    s->fill = 0;
    j->busy--;
    if (d->result < 0)
        j->io_error = (int)-d->result;
    else if ((size_t)d->result != d->len)
        j->io_error = ENOSPC; /* the error of a short write to a file */
    else
        atomic_fetch_add(&h->barrier.unsynced_bytes, d->len);
    if (j->state == HYDRATE_JOB_DRAIN) {
        job_advance(j);
    } else if (j->get && j->io_error) {
        store_cancel(j->get);
    } else if (j->get && j->paused) {
        job_pause(j, false);
        store_resume(j->get);
    }
}

static void submit(struct hydrate_job *j, struct job_slice *s)
{
    uint32_t align = j->large->align;
    size_t len = s->fill;
    if (align && len % align) {
        /* The end of the object, padded: the surplus is cut off before the object counts as whole. */
        size_t padded = (len + align - 1) / align * align;
        memset((char *)s->bytes + len, 0, padded - len);
        len = padded;
    }
    s->io = (struct disk_job){
        .op = DISK_WRITE, .fd = j->large->fd, .bytes = s->bytes, .len = len, .offset = s->offset, .done = written};
    s->busy = true;
    j->busy++;
    j->filling = -1;
    uring_submit(j->lane->worker.uring, &s->io);
}

/* Chooses the slice to fill: one of the job that is written, or a new one if the budget has it. */
static bool next_slice(struct hydrate_job *j)
{
    int empty = -1;
    for (int i = 0; i < HYDRATE_JOB_SLICES; i++) {
        struct job_slice *s = &j->slices[i];
        if (s->bytes && !s->busy) {
            empty = i;
            break;
        }
        if (!s->bytes && empty < 0)
            empty = i;
    }
    if (empty < 0)
        return false;
    if (!j->slices[empty].bytes)
        j->slices[empty].bytes = budget_take(j->lane->h->budget, SLICE_BYTES, NULL);
    if (!j->slices[empty].bytes)
        return false;
    j->filling = empty;
    j->slices[empty].fill = 0;
    j->slices[empty].offset = j->offset + j->received;
    return true;
}

int part_data(struct hydrate_job *j, const char *bytes, size_t len)
{
    /* After a pause libcurl delivers the whole chunk again: skip the bytes that were taken. */
    size_t at = min_u64(j->skip, len);
    j->skip -= at;
    while (at < len) {
        if (j->filling < 0 && !next_slice(j)) {
            j->skip = at;
            job_pause(j, true);
            return WEB_PAUSE;
        }
        struct job_slice *s = &j->slices[j->filling];
        size_t n = min_u64(len - at, SLICE_BYTES - s->fill);
        hash_copy_out(&j->hash, (char *)s->bytes + s->fill, bytes + at, n);
        s->fill += n;
        at += n;
        j->received += n;
        atomic_fetch_add_explicit(&j->lane->h->progress.received, n, memory_order_relaxed);
        if (s->fill == SLICE_BYTES)
            submit(j, s);
    }
    return j->io_error ? -ERR_IO : 0;
}

void part_flush(struct hydrate_job *j)
{
    if (j->filling >= 0 && j->slices[j->filling].fill > 0)
        submit(j, &j->slices[j->filling]);
    j->filling = -1;
}

/* ---- a small object: one slice ----------------------------------------------------------------------------------- */

static void request_slice(struct hydrate_job *j);

static void job_mismatch(struct hydrate_job *j, const struct digest *want, const struct digest *got)
{
    struct err err;
    if (!j->mismatched) {
        /* Fetched once more: a fault of memory or network rarely happens twice. */
        j->mismatched = true;
        job_free_slices(j);
        rate_reserve(&j->lane->h->window.starts, STARTS_UNIT, loop_now_ns(j->lane->worker.loop));
        request_slice(j);
        return;
    }
    mismatch_set(&err, want, got);
    job_object_failed(j, FAULT_OTHER, &err);
}

static int small_data(struct hydrate_job *j, const char *bytes, size_t len)
{
    memcpy((char *)j->slices[0].bytes + j->received, bytes, len);
    j->received += len;
    atomic_fetch_add_explicit(&j->lane->h->progress.received, len, memory_order_relaxed);
    return 0;
}

static void small_complete(struct hydrate_job *j, const struct digest *reply)
{
    struct hydrate_lane *l = j->lane;
    struct hydrate *h = l->h;
    struct digest got, want = digest_wanted(h, &j->entry);
    struct err err;
    /* The answer may know a CRC where the listing knew none, or only an MD5, which costs a hundred times as much. */
    if (h->o.verify == HYDRATE_VERIFY_AUTO)
        want = digest_better(&want, reply);
    if (want.kind != HASH_NONE) {
        hash_begin(&l->hash, want.kind);
        hash_update(&l->hash, j->slices[0].bytes, j->entry.size_bytes);
        hash_end(&l->hash, &got);
        if (!digest_eq(&got, &want)) {
            job_mismatch(j, &want, &got);
            return;
        }
    }
    enum hydrate_fault_kind kind;
    int r = small_write(l, j->id, &j->entry, j->slices[0].bytes, &err);
    if (r < 0 && (r = conflict_resolve(l, j->id, &j->entry, &kind, &err)) == 0)
        r = small_write(l, j->id, &j->entry, j->slices[0].bytes, &err);
    if (r < 0)
        job_object_failed(j, kind, &err);
    else if (r > 0)
        job_release(j);
    if (r != 0)
        return;
    if (want.kind == HASH_NONE)
        atomic_fetch_add(&h->progress.size_only, 1);
    atomic_fetch_add(&h->progress.bytes_done, j->entry.size_bytes);
    object_completed(h, j->id);
    job_release(j);
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

static void note_first_byte(struct hydrate_lane *l, uint64_t ns)
{
    uint64_t least = atomic_load_explicit(&l->quickest_ns, memory_order_relaxed);
    if (ns && (!least || ns < least))
        atomic_store_explicit(&l->quickest_ns, ns, memory_order_relaxed);
}

/* At the first byte: a refusal has no body, so at the end of the bodies the refusals would seem more than they are. */
static void note_answer(struct hydrate_job *j, bool refused)
{
    j->tries.is_answered = true;
    window_answered(&j->lane->h->window, j->tries.sent_ns, loop_now_ns(j->lane->worker.loop), refused);
}

static void note_failure(struct hydrate_job *j, const struct store_reply *r)
{
    struct job_answer *a = &j->answer;
    struct store *s = object_store(j->lane->h, &j->entry);
    uint64_t now_ns = loop_now_ns(j->lane->worker.loop);
    a->err = r->err;
    a->kind = fault_kind_of_reply(r);
    j->tries.is_damaged = r->is_malformed || r->status / 100 == 2;
    a->may_retry = store_retry_delay(s, r, j->tries.count, now_ns - j->tries.started_ns, &a->retry_ns);
    if (r->slow_down && r->retry_after_ns == 0 && window_refusals_are_few(&j->lane->h->window))
        a->retry_ns = min_u64(a->retry_ns, REFUSED_WAIT_NS);
    if (r->slow_down)
        outage_check(j->lane->h, window_refused(&j->lane->h->window, now_ns, now_ns), store_retry_limit_ns(s, r),
                     &r->err);
}

static void get_done(void *ctx, const struct store_reply *r)
{
    struct hydrate_job *j = ctx;
    struct hydrate *h = j->lane->h;
    uint64_t now_ns = loop_now_ns(j->lane->worker.loop);
    note_first_byte(j->lane, r->first_byte_ns);
    j->get = NULL;
    job_pause(j, false);
    atomic_fetch_add(&h->progress.requests, r->requests - r->turned_away); /* a refused connection sent none */
    atomic_fetch_add(&h->progress.hedged, r->hedged);
    if (r->first_byte_ns && !j->tries.is_answered)
        note_answer(j, r->slow_down);
    j->answer.code = r->code;
    j->answer.refused = r->slow_down;
    if (r->turned_away) {
        j->tries.count--;
        j->tries.started_ns = now_ns;
    }
    if (j->answer.is_other_version) {
        j->answer.code = -ERR_CHANGED;
        j->answer.may_retry = false;
    } else if (r->code < 0) {
        note_failure(j, r);
    }
    if (j->answer.code == 0 && !j->large) {
        small_complete(j, &r->object.digest);
        return;
    }
    if (j->answer.code == 0)
        part_flush(j);
    job_become(j, HYDRATE_JOB_DRAIN);
    job_advance(j);
}

static void get_head(void *ctx, const struct store_object *reply)
{
    struct hydrate_job *j = ctx;
    j->answer.is_other_version = large_check_version(j->large, reply, &j->answer.err) < 0;
    j->answer.kind = FAULT_LISTING;
}

static int get_data(void *ctx, const char *bytes, size_t len)
{
    struct hydrate_job *j = ctx;
    if (j->answer.is_other_version)
        return -ERR_CHANGED;
    if (!j->tries.is_answered)
        note_answer(j, false);
    else
        window_served(&j->lane->h->window, loop_now_ns(j->lane->worker.loop));
    return j->large ? part_data(j, bytes, len) : small_data(j, bytes, len);
}

static void get(struct hydrate_job *j)
{
    struct hydrate *h = j->lane->h;
    struct store_object object;
    object_of_entry(j->lane, &j->entry, &object);
    j->tries.count++;
    j->tries.sent_ns = loop_now_ns(j->lane->worker.loop);
    job_become(j, HYDRATE_JOB_GET);
    j->received = j->skip = 0;
    j->tries.is_answered = j->answer.is_other_version = false;
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
                          .attempts = j->tries.count - 1,
                          .new_connection = j->tries.count > 1 && j->tries.is_damaged,
                          .patient = j->tries.count > 1,
                          .on_head = j->large && !j->large->is_pinned ? get_head : NULL,
                          .on_data = get_data,
                          .on_done = get_done};
    j->get = store_get(object_store(h, &j->entry), &j->lane->worker, &g);
}

static void take_slice(struct hydrate_job *j)
{
    size_t want = j->large ? SLICE_BYTES : (size_t)j->entry.size_bytes;
    void *bytes = budget_take(j->lane->h->budget, want, &j->waiter);
    if (!bytes)
        return;
    j->slices[0].bytes = bytes;
    get(j);
}

static void request_slice(struct hydrate_job *j)
{
    job_become(j, HYDRATE_JOB_SLICE);
    take_slice(j);
}

/* ---- start of a job ---------------------------------------------------------------------------------------------- */

static void wake(struct budget_waiter *w)
{
    struct hydrate_job *j = container_of(w, struct hydrate_job, waiter);
    atomic_store(&j->is_granted, true);
    loop_post(j->lane->worker.loop, &j->granted);
}

static void deliver_granted(struct mail *m)
{
    struct hydrate_job *j = container_of(m, struct hydrate_job, granted);
    atomic_store(&j->is_granted, false);
    if (!atomic_load(&j->lane->h->stopping)) {
        take_slice(j);
        return;
    }
    budget_cancel(j->lane->h->budget, &j->waiter);
    job_release(j);
}

static void backoff_over(struct timer *t)
{
    struct hydrate_job *j = container_of(t, struct hydrate_job, backoff);
    j->is_due = true;
    list_add(&j->lane->due, &j->due);
    loop_defer(j->lane->worker.loop, &j->lane->pump);
}

static struct hydrate_job *job_new(struct hydrate_lane *l)
{
    struct hydrate_job *j = list_pop(&l->free_jobs, struct hydrate_job, node);
    if (!j) {
        j = xcalloc(1, sizeof *j);
        hash_init(&j->hash);
    }
    struct hash reused = j->hash;
    *j = (struct hydrate_job){.lane = l, .hash = reused, .filling = -1};
    j->waiter.wake = wake;
    j->granted.deliver = deliver_granted;
    j->backoff.fire = backoff_over;
    for (size_t i = 0; i < HYDRATE_JOB_SLICES; i++)
        j->slices[i].job = j;
    return j;
}

void job_begin(struct hydrate_lane *l, const struct hydrate_unit *u)
{
    struct hydrate_job *j = job_new(l);
    uint64_t offset;
    j->id = u->id;
    j->entry = u->entry;
    j->large = u->large;
    j->part = u->part;
    j->tries.started_ns = loop_now_ns(l->worker.loop);
    list_add(&l->running, &j->node);
    l->running_count++;
    j->in_flight = u->entry.size_bytes;
    if (u->large)
        plan_part(u->entry.size_bytes, u->part, &offset, &j->in_flight);
    atomic_fetch_add(&l->h->progress.in_flight, j->in_flight);
    request_slice(j);
}

void job_retry(struct hydrate_job *j)
{
    j->is_due = false;
    count_waiting(j, UINT_MAX);
    request_slice(j);
}

void job_stop(struct hydrate_job *j)
{
    switch (j->state) {
    case HYDRATE_JOB_SLICE:
        budget_cancel(j->lane->h->budget, &j->waiter);
        if (!atomic_load(&j->is_granted)) /* else the mail ends the job */
            job_release(j);
        return;
    case HYDRATE_JOB_GET:
        if (j->get)
            store_cancel(j->get);
        return;
    case HYDRATE_JOB_BACKOFF:
        loop_timer_cancel(j->lane->worker.loop, &j->backoff);
        if (j->is_due)
            list_remove(&j->lane->due, &j->due);
        count_waiting(j, UINT_MAX);
        job_release(j);
        return;
    case HYDRATE_JOB_DRAIN:
    case HYDRATE_JOB_IDLE:
        return;
    }
}
