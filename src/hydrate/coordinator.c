/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "util/thread.h"
#include <inttypes.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The only function that changes the state. */
static void coordinator_become(struct hydrate_coordinator *d, enum coordinator_state state)
{
    assert(state > d->state);
    d->state = state;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* The error of a run whose objects did not all arrive. */
static int incomplete(struct hydrate *h, struct err *err)
{
    uint64_t failed = atomic_load(&h->progress.objects_failed), kept = atomic_load(&h->progress.objects_kept);
    if (failed == 0)
        return err_fail(err, ERR_EXISTS, CIS_FILES_KEPT,
                        "%" PRIu64 " of %" PRIu64 " objects were not written: other files have their names", kept,
                        index_count(h->index));
    err_set(err, ERR_IO, "%" PRIu64 " of %" PRIu64 " objects failed", failed, index_count(h->index));
    return err_advise(err, CIS_OBJECTS_FAILED,
                      h->faults.is_stale ? "list the source again and fetch current versions" : "retry them");
}

/* The manifest digest differs between two volumes of one source that were filled from different objects. */
static int note_manifest(struct hydrate *h, struct err *err)
{
    struct digest d;
    auto_sbuf b = SBUF(HYDRATE_MANIFEST_MAX);
    int r = index_manifest(h->index, &d, err);
    if (r < 0)
        return r;
    sbuf_adds(&b, "sha256:");
    digest_add_hex(&d, &b);
    auto_lock(&h->progress.lock);
    snprintf(h->progress.manifest, sizeof h->progress.manifest, "%.*s", STR_FMT(sbuf_str(&b)));
    return 0;
}

static bool is_complete(struct hydrate *h)
{
    return atomic_load(&h->progress.objects_failed) + atomic_load(&h->progress.objects_kept) == 0;
}

static int complete(struct hydrate *h, struct err *err)
{
    bool is_volume = h->target->kind == TARGET_VOLUME, whole = is_complete(h);
    bool durable = (h->o.durable || is_volume) && !h->progress.was_complete;
    int r = durable ? barrier_run(h, err) : 0;
    if (r == 0 && whole && is_volume)
        r = note_manifest(h, err);
    if (r == 0 && !is_volume && atomic_load(&h->progress.objects_failed) == 0) {
        journal_mark_stale(h->journal); /* the next run looks for changed objects */
        r = journal_flush(h->journal, err);
    }
    if (r == 0 && durable && whole)
        r = journal_complete(h->journal, index_count(h->index), index_bytes(h->index), clock_wall_ns(), err);
    return r == 0 ? target_finish(h->target, whole, durable, err) : r;
}

bool hydrate_is_void(const struct hydrate *h)
{
    return h->target->kind != TARGET_VOLUME && index_count(h->index) == 0 &&
           (!h->old.index || index_count(h->old.index) == 0);
}

static void run_finish(struct work *w)
{
    struct hydrate *h = container_of(w, struct hydrate, coordinator.finish_work);
    const struct hydrate_faults *f = &h->faults;
    struct err err;
    if (f->is_stale && !f->is_cancelled) /* a cancelled run continues first */
        journal_mark_stale(h->journal);
    int r = journal_flush(h->journal, &err);
    h->coordinator.finish_err.code = 0;
    if (f->fatal_kind == FAULT_TOO_LARGE || ((f->has_fatal || f->is_cancelled) && hydrate_is_void(h)))
        r = target_clean(h->target, &err);
    else if (f->fatal_kind == FAULT_LISTED_TWICE && !h->old.index) /* every run of this catalog would fail */
        r = target_wipe(h->target, &err);
    else if (r == 0 && !atomic_load(&h->stopping))
        r = complete(h, &err);
    if (r < 0)
        h->coordinator.finish_err = err;
}

static void finish_done(struct work *w)
{
    struct hydrate *h = container_of(w, struct hydrate, coordinator.finish_work);
    struct err err;
    if (h->coordinator.finish_err.code != 0) {
        run_failed(h, FAULT_OTHER, &h->coordinator.finish_err);
    } else if (!atomic_load(&h->stopping) && !is_complete(h)) {
        incomplete(h, &err);
        run_failed(h, FAULT_INCOMPLETE, &err);
    }
    phase_become(h, h->faults.has_fatal ? HYDRATE_FAILED : h->faults.is_cancelled ? HYDRATE_STOPPED : HYDRATE_DONE);
    progress_write(h);
    loop_timer_cancel(h->coordinator.loop, &h->coordinator.tick);
    loop_timer_cancel(h->coordinator.loop, &h->coordinator.climb);
    coordinator_become(&h->coordinator, COORDINATOR_ENDED);
    atomic_store(&h->ended, true);
    if (eventfd_write(h->ended_fd, 1) != 0)
        abort(); /* the first write to an eventfd cannot fail */
}

static void check_end(struct hydrate *h)
{
    bool stopping = atomic_load(&h->stopping);
    if (h->coordinator.state >= COORDINATOR_FINISHING)
        return;
    if (stopping && h->coordinator.state == COORDINATOR_RUNNING) {
        coordinator_become(&h->coordinator, COORDINATOR_STOPPING);
        lister_cancel(h);
        lanes_wake(h);
    }
    if (!hydrate_queue_is_drained(h, stopping) || h->barrier.is_running)
        return;
    coordinator_become(&h->coordinator, COORDINATOR_FINISHING);
    if (!stopping)
        phase_become(h, HYDRATE_VERIFYING);
    h->coordinator.finish_work.run = run_finish;
    h->coordinator.finish_work.done = finish_done;
    thread_pool_submit(h->threads, h->coordinator.loop, &h->coordinator.finish_work);
}

static void deliver_check(struct mail *m)
{
    struct hydrate *h = container_of(m, struct hydrate, coordinator.check);
    atomic_store(&h->coordinator.is_check_posted, false);
    check_end(h);
}

/* ---- the clock --------------------------------------------------------------------------------------------------- */

static void tick(struct timer *t)
{
    struct hydrate *h = container_of(t, struct hydrate, coordinator.tick);
    struct err err;
    if (journal_flush(h->journal, &err) < 0)
        run_failed(h, FAULT_OTHER, &err);
    window_tick(h, loop_now_ns(h->coordinator.loop));
    progress_measure_rate(h);
    barrier_tick(h);
    if (h->coordinator.ticks++ % (NS_PER_SECOND / TICK_NS) == 0) {
        /* A state directory that is being removed must not get a new file. */
        if (h->coordinator.state < COORDINATOR_FINISHING || h->target->kind == TARGET_VOLUME)
            progress_write(h);
        index_release(h->index);
    }
    check_end(h);
    if (!atomic_load(&h->ended))
        loop_timer_set(h->coordinator.loop, &h->coordinator.tick, TICK_NS);
}

static void climb(struct timer *t)
{
    struct hydrate *h = container_of(t, struct hydrate, coordinator.climb);
    uint64_t again_ns = window_climb(h, loop_now_ns(h->coordinator.loop));
    if (again_ns && !atomic_load(&h->ended))
        loop_timer_set(h->coordinator.loop, t, again_ns);
}

static void deliver_begin(struct mail *m)
{
    struct hydrate *h = container_of(m, struct hydrate, coordinator.begin);
    h->progress.rate_ns = h->barrier.ended_ns = loop_now_ns(h->coordinator.loop);
    lister_start(h);
    tick(&h->coordinator.tick);
    climb(&h->coordinator.climb);
    lanes_wake(h);
}

void coordinator_init(struct hydrate_coordinator *d)
{
    d->check.deliver = deliver_check;
    d->begin.deliver = deliver_begin;
    d->tick.fire = tick;
    d->climb.fire = climb;
}
