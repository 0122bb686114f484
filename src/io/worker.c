/* SPDX-License-Identifier: Apache-2.0 */
#include "io/worker.h"
#include "util/cgroup.h"
#include <sched.h>
#include <stdio.h>

int worker_init(struct worker *w, unsigned number, struct thread_pool *pool, const struct web_options *web,
                bool allow_uring, struct err *err)
{
    char name[16];
    snprintf(name, sizeof name, "loop/%u", number);
    *w = (struct worker){.threads = pool};
    int r = loop_new(name, &w->loop, err);
    if (r == 0)
        r = web_new(w->loop, web, &w->web, err);
    if (r == 0)
        r = uring_new(w->loop, pool, allow_uring, &w->uring, err);
    if (r < 0)
        worker_done(w);
    return r;
}

unsigned worker_count(unsigned more)
{
    cpu_set_t allowed;
    /* It fails if the kernel has more processors than the set holds: then there are enough. */
    int cpus = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : WORKERS_DEFAULT_MAX;
    uint64_t thousandths = cgroup_cpu_limit(), whole = thousandths / 1000 + (thousandths % 1000 > 0);
    return (unsigned)min_u64(min_u64((uint64_t)cpus, max_u64(whole, 1)) + more, WORKERS_DEFAULT_MAX);
}

void worker_done(struct worker *w)
{
    if (!w->loop)
        return;
    loop_stop_and_join(w->loop);
    web_free(take(&w->web));
    uring_free(take(&w->uring));
    loop_free(take(&w->loop));
}
