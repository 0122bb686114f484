/* SPDX-License-Identifier: Apache-2.0 */
#include "client_private.h"
#include "kube/lease.h"
#include "util/clock.h"
#include <assert.h>

enum {
    QPS_DEFAULT = 20,
    QUEUE_DEFAULT = 4096,
    BODY_DEFAULT = 32 << 20,
    SENT_MAX = 64, /* under way at once: a server that is slow gets no more, whatever the rate allows */
};

#define TIMEOUT_DEFAULT_NS (30 * NS_PER_SECOND)

/* ---- a job's life ------------------------------------------------------------------------------------------------ */

static void unqueue(struct kube_job *j)
{
    struct kube *k = j->kube;
    for (struct kube_job **at = &k->first; *at; at = &(*at)->next_queued)
        if (*at == j) {
            *at = j->next_queued;
            if (!*at)
                k->last = at;
            k->queued--;
            return;
        }
}

void kube_job_end(struct kube_job *j)
{
    struct kube *k = j->kube;
    loop_timer_cancel(k->loop, &j->timer);
    if (j->prev)
        j->prev->next = j->next;
    else
        k->jobs = j->next;
    if (j->next)
        j->next->prev = j->prev;
    if (j->request.on_done)
        j->request.on_done(j->request.ctx, &j->reply);
    json_free(j->reply.object);
    json_free(j->gathered);
    free(j->next_page);
    wire_done(&j->wire);
    if (j->got.ptr)
        explicit_bzero(j->got.ptr, j->got.len);
    sbuf_done(&j->got);
    free(j);
}

/* From the loop's next turn on: nobody is told from within what he called. */
void kube_job_settle(struct kube_job *j, const struct err *err)
{
    if (j->state == JOB_QUEUED)
        unqueue(j);
    j->state = JOB_ENDING;
    j->reply.code = err ? err_copy(&j->reply.err, err) : 0;
    if (err)
        json_free(take(&j->reply.object));
    loop_timer_set(j->kube->loop, &j->timer, 0);
}

void kube_job_wait(struct kube_job *j, uint64_t delay_ns)
{
    j->state = JOB_WAITING;
    loop_timer_set(j->kube->loop, &j->timer, delay_ns);
}

static void settle_cancelled(struct kube_job *j, const char *why)
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
        kube_job_send(j);
        return;
    }
    if (k->queued >= k->queue_max) {
        err_set(&err, ERR_NO_SPACE, "cannot %s: %u requests wait already", j->wire.what, k->queued);
        err_advise(&err, 5007, "the API server is slow, or asked for too much at once");
        kube_job_settle(j, &err);
        return;
    }
    j->state = JOB_QUEUED;
    j->next_queued = NULL;
    *k->last = j;
    k->last = &j->next_queued;
    k->queued++;
    loop_timer_set(k->loop, &j->timer, j->deadline_ns > now ? j->deadline_ns - now : 0);
    kube_pump(k);
}

/* The time is over, or the wait for another attempt, or the end is to be told. */
static void job_timer(struct timer *t)
{
    struct kube_job *j = container_of(t, struct kube_job, timer);
    struct err err;
    if (j->state == JOB_ENDING) {
        kube_job_end(j);
    } else if (j->state == JOB_WAITING) {
        kube_job_queue(j);
    } else {
        err_set(&err, ERR_TIMEOUT, "cannot %s: it was not its turn in time", j->wire.what);
        err_advise(&err, 5007, "the API server is slow, or asked for too much at once");
        kube_job_settle(j, &err);
    }
}

void kube_pump(struct kube *k)
{
    uint64_t wait = 0;
    while (k->first && k->sent < SENT_MAX && (wait = bucket_take(&k->bucket, loop_now_ns(k->loop))) == 0) {
        struct kube_job *j = k->first;
        unqueue(j);
        kube_job_send(j);
    }
    if (k->first && wait)
        loop_timer_set(k->loop, &k->pump, wait);
}

static void pumped(struct timer *t)
{
    kube_pump(container_of(t, struct kube, pump));
}

struct kube_job *kube_job_start(struct kube *k, const struct kube_request *r, const struct kube_stream *stream)
{
    assert(loop_is_mine(k->loop));
    struct kube_job *j = xcalloc(1, sizeof *j);
    struct err err;
    uint64_t timeout = r->timeout_ns ? r->timeout_ns : TIMEOUT_DEFAULT_NS;
    j->kube = k;
    j->timer.fire = job_timer;
    j->state = JOB_WAITING;
    j->next = k->jobs;
    if (j->next)
        j->next->prev = j;
    k->jobs = j;
    j->request = *r;
    j->request.body = NULL;
    j->is_watch = stream != NULL;
    if (stream)
        j->stream = (struct kube_stream){.lasts_ns = stream->lasts_ns, .on_bytes = stream->on_bytes};
    sbuf_init(&j->got, k->body_max);
    j->request.timeout_ns = timeout;
    j->deadline_ns = loop_now_ns(k->loop) + timeout;
    if (wire_make(&j->wire, k->server, r, k->manager, &err) < 0) {
        kube_job_settle(j, &err);
    } else if (atomic_load(&k->stopping) && (!r->exempt || !k->web)) {
        settle_cancelled(j, "the client stops");
    } else {
        if (stream) {
            snprintf(j->wire.what, sizeof j->wire.what, "watch %s", r->resource->plural);
            wire_add_query(&j->wire.url, "watch", STR("1"));
            wire_add_query(&j->wire.url, "allowWatchBookmarks", STR("true"));
            wire_add_query(&j->wire.url, "resourceVersion", stream->resource_version);
        } else if (r->verb == KUBE_LIST && !r->on_page) {
            j->gathered = json_new_array();
        }
        kube_job_queue(j);
    }
    return j;
}

struct kube_job *kube_submit(struct kube *k, const struct kube_request *r)
{
    return kube_job_start(k, r, NULL);
}

void kube_cancel(struct kube_job *j)
{
    j->cancelled = true;
    if (j->state == JOB_SENT)
        web_cancel(j->web);
    else if (j->state != JOB_ENDING)
        settle_cancelled(j, "cancelled");
    else if (j->reply.code == 0) {
        json_free(take(&j->reply.object));
        j->reply.code = err_set(&j->reply.err, ERR_CANCELLED, "cannot %s: cancelled", j->wire.what);
    }
}

void kube_abandon(struct kube_job *j)
{
    j->request.on_done = NULL;
    j->request.on_page = NULL;
    kube_cancel(j);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void stop_delivered(struct mail *m)
{
    struct kube_stop *stop = container_of(m, struct kube_stop, mail);
    struct kube *k = stop->kube;
    for (struct kube_job *j = k ? k->jobs : NULL; j; j = j->next)
        if (!j->request.exempt)
            kube_cancel(j);
    if (k)
        k->stop = NULL;
    free(stop);
}

void kube_stop(struct kube *k)
{
    if (!atomic_exchange(&k->stopping, true))
        loop_post(k->loop, &k->stop->mail);
}

uint64_t kube_requests_sent(const struct kube *k)
{
    return atomic_load_explicit(&k->requests_sent, memory_order_relaxed);
}

int kube_new(struct loop *l, const struct kube_config *c, const struct kube_options *o, struct kube **ret,
             struct err *err)
{
    auto_kube k = xcalloc(1, sizeof *k);
    struct web_options web = {.ca = str_of(c->ca),
                              .certificate = str_of(c->certificate),
                              .key = str_of(c->key),
                              .any_server = c->skips_tls_checks,
                              .connect_timeout_ns = 5 * NS_PER_SECOND};
    unsigned qps = o->qps ? o->qps : QPS_DEFAULT;
    const char *manager = o->field_manager ? o->field_manager : "cistern";
    char agent[128];
    snprintf(agent, sizeof agent, "%s/%s", manager, CISTERN_VERSION);
    k->loop = l;
    k->server = str_dup(str_of(c->server));
    k->manager = str_dup(str_of(manager));
    k->user_agent = str_dup(str_of(agent));
    token_init(&k->token, c);
    k->queue_max = o->queue_max ? o->queue_max : QUEUE_DEFAULT;
    k->body_max = o->body_max ? o->body_max : BODY_DEFAULT;
    bucket_init(&k->bucket, qps, o->burst ? o->burst : 2 * qps);
    k->pump.fire = pumped;
    k->last = &k->first;
    k->stop = xcalloc(1, sizeof *k->stop);
    *k->stop = (struct kube_stop){.mail.deliver = stop_delivered, .kube = k};
    int r = web_new(l, &web, &k->web, err);
    if (r < 0)
        return r;
    *ret = take(&k);
    return 0;
}

void kube_free(struct kube *k)
{
    if (!k)
        return;
    assert(loop_is_mine(k->loop));
    if (k->stop)
        k->stop->kube = NULL;
    if (!atomic_exchange(&k->stopping, true))
        free(k->stop);
    for (struct kube_job *j = k->jobs; j; j = j->next)
        kube_cancel(j);
    web_free(take(&k->web));   /* ends those that were sent; a release of a lease is cut off too */
    while (k->jobs)            /* a callback may have submitted more, which stopping ends as well */
        kube_job_end(k->jobs); // NOLINT(clang-analyzer-unix.Malloc): it has taken itself out of the list
    loop_timer_cancel(k->loop, &k->pump);
    token_done(&k->token);
    free(k->server);
    free(k->manager);
    free(k->user_agent);
    free(k);
}
