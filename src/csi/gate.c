/* SPDX-License-Identifier: Apache-2.0 */
#include "gate.h"
#include "progress.h"
#include "util/clock.h"
#include <stdatomic.h>

/* The kubelet waits two minutes for an answer; one that comes before says how far it is, a timeout says nothing. */
#define WAIT_NS (100 * NS_PER_SECOND)
#define MARGIN_NS NS_PER_SECOND
#define LOOK_FIRST_NS (20 * NS_PER_MS)
#define LOOK_LAST_NS (500 * NS_PER_MS)

enum { WAITING_MAX = 24 }; /* of 32 threads */

static _Atomic unsigned waiting;

static int not_yet(const struct volume *v, const char *progress, struct err *err)
{
    err_set(err, ERR_AGAIN, "volume '%s' is not ready: %s", v->spec->id, progress);
    return err_advise(err, 3015, "ask again");
}

static int failed(const struct driver *d, const struct volume *v, const char *why, const struct job_view *job,
                  struct err *err)
{
    char wait[TIME_TEXT_MAX];
    err_set(err, ERR_AGAIN, "volume '%s' is not ready, its hydration failed: %s", v->spec->id, why);
    if (d->is_node)
        return err_advise(err, 3016, "its Job tries it again");
    if (job->state != JOB_FAILED)
        return err_advise(err, 3016, "it is tried again now");
    return err_advise(err, 3016, "it is tried again in %s", duration_text(job->retry_ns, wait));
}

static uint64_t end_of_wait(struct rpc_call *call)
{
    uint64_t deadline_ns = rpc_deadline_ns(call), ours_ns = clock_now_ns() + WAIT_NS;
    return deadline_ns == UINT64_MAX ? ours_ns : min_u64(ours_ns, deadline_ns - min_u64(deadline_ns, MARGIN_NS));
}

static int wait_for_data(struct driver *d, struct rpc_call *call, const struct volume *v, bool may_wait,
                         struct err *err)
{
    char text[HEALTH_TEXT_MAX];
    struct job_view job;
    bool has_failed;
    uint64_t end_ns = end_of_wait(call), look_ns = LOOK_FIRST_NS;
    while (!data_is_whole(v, text, &has_failed)) {
        int r = driver_want_job(d, v, JOB_HYDRATE, false, &job, err);
        if (r < 0)
            return r;
        if (has_failed && job.state == JOB_FAILED)
            return failed(d, v, text, &job, err);
        uint64_t now_ns = clock_now_ns();
        if (!may_wait || now_ns >= end_ns || !rpc_sleep_until(call, min_u64(now_ns + look_ns, end_ns)))
            return not_yet(v, text, err);
        look_ns = min_u64(look_ns * 2, LOOK_LAST_NS);
    }
    return 0;
}

int gate_wait(struct driver *d, struct rpc_call *call, const struct volume *v, struct err *err)
{
    bool may_wait = atomic_fetch_add(&waiting, 1) < WAITING_MAX;
    int r = wait_for_data(d, call, v, may_wait, err);
    atomic_fetch_sub(&waiting, 1);
    return r;
}
