/* SPDX-License-Identifier: Apache-2.0 */
/* Barriers: what was written becomes durable, for many objects at once. */
#include "private.h"

/* Not before there is something to lose, and not so often that the disk does little else. */
static const uint64_t barrier_bytes = UINT64_C(4) << 30, barrier_ns_default = 15 * NS_PER_SECOND;

int barrier_run(struct hydrate *h, struct err *err)
{
    atomic_store(&h->unsynced, 0);
    int r = journal_barrier_begin(h->journal, err);
    if (r < 0)
        return r;
    /* The catalog too: a durable id must have its name. */
    if (!index_is_complete(h->index))
        r = index_sync(h->index, err);
    if (r == 0 && syncfs(h->sync_fd) != 0)
        r = err_sys(err, errno, "cannot make the files durable");
    if (r < 0) {
        /* The kernel may have dropped the pages, and will report success next time. */
        journal_barrier_failed(h->journal, err);
        return r;
    }
    return journal_barrier_held(h->journal, err);
}

static void run_barrier(struct work *w)
{
    struct hydrate *h = container_of(w, struct hydrate, barrier_work);
    if (barrier_run(h, &h->barrier_err) == 0)
        h->barrier_err.code = 0;
}

static void barrier_over(struct work *w)
{
    struct hydrate *h = container_of(w, struct hydrate, barrier_work);
    h->barrier_runs = false;
    h->barrier_ns = loop_now_ns(h->loop);
    if (h->barrier_err.code != 0)
        hydrate_fail(h, &h->barrier_err);
    driver_look(h);
}

void barrier_tick(struct hydrate *h)
{
    uint64_t unsynced = atomic_load(&h->unsynced);
    uint64_t every_ns = h->o.barrier_ns ? h->o.barrier_ns : barrier_ns_default;
    bool due = unsynced > 0 && loop_now_ns(h->loop) - h->barrier_ns > every_ns;
    if (h->barrier_runs || h->is_finishing || (!due && unsynced < barrier_bytes))
        return;
    h->barrier_runs = true;
    h->barrier_work.run = run_barrier;
    h->barrier_work.done = barrier_over;
    pool_submit(h->pool, h->loop, &h->barrier_work);
}
