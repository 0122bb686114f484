/* SPDX-License-Identifier: Apache-2.0 */
#include "client_private.h"
#include "kube/lease.h"
#include "util/clock.h"
#include <assert.h>
#include <semaphore.h>

enum {
    QPS_DEFAULT = 20,
    QUEUE_DEFAULT = 4096,
    BODY_DEFAULT = 32 << 20,
};

#define TIMEOUT_DEFAULT_NS (30 * NS_PER_SECOND)

struct kube_exchange *kube_exchange_start(struct kube *k, const struct kube_request *r,
                                          const struct kube_stream *stream)
{
    assert(loop_is_mine(k->loop));
    struct kube_exchange *x = xcalloc(1, sizeof *x);
    struct err err;
    uint64_t timeout = r->timeout_ns ? r->timeout_ns : TIMEOUT_DEFAULT_NS;
    x->kube = k;
    x->timer.fire = kube_exchange_timer;
    list_add_first(&k->exchanges, &x->node);
    x->request = *r;
    x->request.body = NULL;
    x->is_watch = stream != NULL;
    if (stream)
        x->stream = (struct kube_stream){
            .lasts_ns = stream->lasts_ns, .silence_ns = stream->silence_ns, .on_bytes = stream->on_bytes};
    sbuf_init(&x->got, k->body_max);
    x->request.timeout_ns = timeout;
    x->deadline_ns = loop_now_ns(k->loop) + timeout;
    if (kube_http_request_make(&x->http, k->server, r, k->manager, &err) < 0) {
        kube_exchange_settle(x, &err);
    } else if (atomic_load(&k->stopping) && (!r->exempt || !k->web)) {
        kube_exchange_settle_cancelled(x, "the client is stopping");
    } else {
        if (stream) {
            snprintf(x->http.what, sizeof x->http.what, "watch %s", r->resource->plural);
            kube_http_request_add_query(&x->http.url, "watch", STR("1"));
            kube_http_request_add_query(&x->http.url, "allowWatchBookmarks", STR("true"));
            kube_http_request_add_query(&x->http.url, "resourceVersion", stream->resource_version);
        } else if (r->verb == KUBE_LIST && !r->on_page) {
            x->gathered = json_new_array();
        }
        kube_exchange_queue(x);
    }
    return x;
}

struct kube_exchange *kube_submit(struct kube *k, const struct kube_request *r)
{
    return kube_exchange_start(k, r, NULL);
}

void kube_cancel(struct kube_exchange *x)
{
    x->cancelled = true;
    if (x->state == KUBE_EXCHANGE_SENT)
        web_cancel(x->web);
    else if (x->state != KUBE_EXCHANGE_ENDING)
        kube_exchange_settle_cancelled(x, "cancelled");
    else if (x->reply.code == 0) {
        json_free(take(&x->reply.object));
        x->reply.code = err_set(&x->reply.err, ERR_CANCELLED, "cannot %s: cancelled", x->http.what);
    }
}

void kube_abandon(struct kube_exchange *x)
{
    x->request.on_done = NULL;
    x->request.on_page = NULL;
    kube_cancel(x);
}

/* ---- blocking calls ---------------------------------------------------------------------------------------------- */

/* On the stack of the thread that waits. */
struct waiting_call {
    struct mail mail;
    struct kube *kube;
    struct kube_request request;
    void *ctx; /* the caller's, for on_page */
    void (*on_page)(void *ctx, json **own_items);
    struct kube_reply reply;
    sem_t over;
};

static void page_came(void *ctx, json **own_items)
{
    struct waiting_call *c = ctx;
    c->on_page(c->ctx, own_items);
}

/* sem_post comes last: the caller may free `c` at once. */
static void call_done(void *ctx, struct kube_reply *r)
{
    struct waiting_call *c = ctx;
    c->reply = *r;
    r->object = NULL;
    sem_post(&c->over);
}

static void call_delivered(struct mail *m)
{
    struct waiting_call *c = container_of(m, struct waiting_call, mail);
    kube_submit(c->kube, &c->request);
}

int kube_call(struct kube *k, const struct kube_request *r, json **ret, struct err *err)
{
    struct waiting_call c = {
        .mail.deliver = call_delivered, .kube = k, .request = *r, .ctx = r->ctx, .on_page = r->on_page};
    c.request.ctx = &c;
    c.request.on_done = call_done;
    c.request.on_page = r->on_page ? page_came : NULL;
    sem_init(&c.over, 0, 0);
    loop_post(k->loop, &c.mail);
    while (sem_wait(&c.over) < 0)
        assert(errno == EINTR);
    sem_destroy(&c.over);
    if (c.reply.code < 0)
        return err_copy(err, &c.reply.err);
    if (ret)
        *ret = c.reply.object;
    else
        json_free(c.reply.object);
    return 0;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void stop_delivered(struct mail *m)
{
    struct kube_stop *stop = container_of(m, struct kube_stop, mail);
    struct kube *k = stop->kube;
    struct kube_exchange *x;
    if (k) {
        list_foreach (&k->exchanges, x, node)
            if (!x->request.exempt)
                kube_cancel(x);
        k->stop = NULL;
    }
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
    bearer_token_init(&k->token, c);
    k->queue_max = o->queue_max ? o->queue_max : QUEUE_DEFAULT;
    k->body_max = o->body_max ? o->body_max : BODY_DEFAULT;
    rate_init(&k->rate, qps, o->burst ? o->burst : 2 * qps);
    k->pump.fire = kube_pump_timer;
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
    struct kube_exchange *x;
    list_foreach (&k->exchanges, x, node)
        kube_cancel(x);
    web_free(take(&k->web)); /* ends the sent ones, also the release of a lease */
    /* A callback may have submitted more, which has failed because the client is stopping. */
    while ((x = list_first(&k->exchanges, struct kube_exchange, node)) != NULL)
        kube_exchange_end(x); // NOLINT(clang-analyzer-unix.Malloc): it removes itself from the list
    loop_timer_cancel(k->loop, &k->pump);
    bearer_token_done(&k->token);
    free(k->server);
    free(k->manager);
    free(k->user_agent);
    free(k);
}
