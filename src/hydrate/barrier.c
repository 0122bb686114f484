/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include <unistd.h>

/* Below these, a barrier costs the disk more than a repeated fetch after a power loss. */
static const uint64_t barrier_bytes = UINT64_C(4) << 30, barrier_ns_default = 15 * NS_PER_SECOND;

int barrier_run(struct hydrate *h, struct err *err)
{
    atomic_store(&h->barrier.unsynced_bytes, 0);
    int r = journal_barrier_begin(h->journal, err);
    if (r < 0)
        return r;
    /* The catalog too: a durable id must have its name. */
    if (!index_is_complete(h->index))
        r = index_sync(h->index, err);
    if (r == 0 && syncfs(h->barrier.fs_fd) != 0)
        r = err_sys(err, errno, "cannot make the files durable");
    if (r < 0) {
        /* The kernel may have dropped the pages, and will report success next time. */
        journal_barrier_failed(h->journal, err);
        return r;
    }
    return journal_barrier_succeeded(h->journal, err);
}

static void run_barrier(struct work *w)
{
    struct hydrate *h = container_of(w, struct hydrate, barrier.work);
    if (barrier_run(h, &h->barrier.err) == 0)
        h->barrier.err.code = 0;
}

static void barrier_done(struct work *w)
{
    struct hydrate *h = container_of(w, struct hydrate, barrier.work);
    h->barrier.is_running = false;
    h->barrier.ended_ns = loop_now_ns(h->coordinator.loop);
    if (h->barrier.err.code != 0)
        run_failed(h, FAULT_OTHER, &h->barrier.err);
    coordinator_wake(h);
}

void barrier_tick(struct hydrate *h)
{
    struct hydrate_barrier *b = &h->barrier;
    uint64_t unsynced = atomic_load(&b->unsynced_bytes);
    uint64_t interval_ns = h->o.barrier_ns ? h->o.barrier_ns : barrier_ns_default;
    bool due = unsynced > 0 && loop_now_ns(h->coordinator.loop) - b->ended_ns > interval_ns;
    if (b->is_running || h->coordinator.state >= COORDINATOR_FINISHING || (!due && unsynced < barrier_bytes))
        return;
    b->is_running = true;
    b->work.run = run_barrier;
    b->work.done = barrier_done;
    thread_pool_submit(h->threads, h->coordinator.loop, &b->work);
}
