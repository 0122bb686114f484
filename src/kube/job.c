/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of requests: each waits for the rate, is sent, maybe waits for a retry, and ends. */
#include "client_private.h"
#include <assert.h>

enum { SENT_MAX = 64 }; /* requests in flight; a slow server gets no more, whatever the rate allows */

/* The one place that changes the state of a job. */
void kube_job_become(struct kube_job *j, enum kube_job_state next)
{
    static const unsigned allowed[] = {
        [JOB_WAITING] = 1u << JOB_QUEUED | 1u << JOB_SENT | 1u << JOB_WAITING | 1u << JOB_ENDING,
        [JOB_QUEUED] = 1u << JOB_WAITING | 1u << JOB_ENDING,
        [JOB_SENT] = 1u << JOB_WAITING | 1u << JOB_ENDING,
        [JOB_ENDING] = 1u << JOB_ENDING,
    };
    assert(allowed[j->state] >> next & 1);
    j->state = next;
}

static void unqueue(struct kube_job *j)
{
    list_remove(&j->kube->queue, &j->queued_node);
    j->kube->queued--;
}

void kube_job_end(struct kube_job *j)
{
    struct kube *k = j->kube;
    loop_timer_cancel(k->loop, &j->timer);
    list_remove(&k->jobs, &j->node);
    if (j->request.on_done)
        j->request.on_done(j->request.ctx, &j->reply);
    json_free(j->reply.object);
    json_free(j->gathered);
    free(j->next_page);
    kube_wire_done(&j->wire);
    if (j->got.ptr)
        explicit_bzero(j->got.ptr, j->got.len);
    sbuf_done(&j->got);
    free(j);
}

/* on_done runs at the loop's next turn, never within the caller's call. */
void kube_job_settle(struct kube_job *j, const struct err *err)
{
    if (j->state == JOB_QUEUED)
        unqueue(j);
    kube_job_become(j, JOB_ENDING);
    j->reply.code = err ? err_copy(&j->reply.err, err) : 0;
    if (err)
        json_free(take(&j->reply.object));
    loop_timer_set(j->kube->loop, &j->timer, 0);
}

void kube_job_wait(struct kube_job *j, uint64_t delay_ns)
{
    kube_job_become(j, JOB_WAITING);
    loop_timer_set(j->kube->loop, &j->timer, delay_ns);
}

void kube_job_settle_cancelled(struct kube_job *j, const char *why)
{
    struct err err;
    err_set(&err, ERR_CANCELLED, "cannot %s: %s", j->wire.what, why);
    kube_job_settle(j, &err);
}

void kube_job_queue(struct kube_job *j)
{
    struct kube *k = j->kube;
    struct err err;
    uint64_t now = loop_now_ns(k->loop);
    if (j->request.exempt) {
        k->send(j);
        return;
    }
    if (k->queued >= k->queue_max) {
        err_fail(&err, ERR_NO_SPACE, CIS_API_LIMIT, "cannot %s: %u requests wait already", j->wire.what, k->queued);
        kube_job_settle(j, &err);
        return;
    }
    kube_job_become(j, JOB_QUEUED);
    list_add(&k->queue, &j->queued_node);
    k->queued++;
    loop_timer_set(k->loop, &j->timer, j->deadline_ns > now ? j->deadline_ns - now : 0);
    kube_pump(k);
}

/* Calls on_done, starts another attempt, or gives up a request that waited too long. */
void kube_job_timer(struct timer *t)
{
    struct kube_job *j = container_of(t, struct kube_job, timer);
    struct err err;
    if (j->state == JOB_ENDING) {
        kube_job_end(j);
    } else if (j->state == JOB_WAITING) {
        kube_job_queue(j);
    } else {
        err_fail(&err, ERR_TIMEOUT, CIS_API_LIMIT, "cannot %s: timeout while waiting for the request rate",
                 j->wire.what);
        kube_job_settle(j, &err);
    }
}

void kube_pump(struct kube *k)
{
    uint64_t wait = 0;
    struct kube_job *j;
    while ((j = list_first(&k->queue, struct kube_job, queued_node)) != NULL && k->sent < SENT_MAX &&
           (wait = token_bucket_take(&k->bucket, loop_now_ns(k->loop))) == 0) {
        unqueue(j);
        k->send(j);
    }
    if (j && wait)
        loop_timer_set(k->loop, &k->pump, wait);
}

void kube_pump_timer(struct timer *t)
{
    kube_pump(container_of(t, struct kube, pump));
}
