/* SPDX-License-Identifier: Apache-2.0 */
#include "client_private.h"
#include "util/clock.h"
#include <assert.h>
#include <semaphore.h>

enum { CHANGE_ATTEMPTS = 10 };

/* On the stack of the thread that waits. */
struct call {
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
    struct call *c = ctx;
    c->on_page(c->ctx, own_items);
}

/* The post is the last that is done with `c`: it may be gone at once. */
static void call_done(void *ctx, struct kube_reply *r)
{
    struct call *c = ctx;
    c->reply = *r;
    r->object = NULL;
    sem_post(&c->over);
}

static void call_delivered(struct mail *m)
{
    struct call *c = container_of(m, struct call, mail);
    kube_submit(c->kube, &c->request);
}

int kube_call(struct kube *k, const struct kube_request *r, json **ret, struct err *err)
{
    struct call c = {.mail.deliver = call_delivered, .kube = k, .request = *r, .ctx = r->ctx, .on_page = r->on_page};
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

static int change_once(struct kube *k, const struct kube_change *c, json **ret, struct err *err)
{
    auto_json object = NULL;
    auto_json changed = NULL;
    struct kube_request r = {
        .verb = KUBE_GET, .resource = c->resource, .ns = c->ns, .name = c->name, .fence = c->fence};
    int code = kube_call(k, &r, &object, err);
    if (code < 0)
        return code;
    int wanted = c->change(c->ctx, object, err);
    if (wanted < 0)
        return wanted;
    r.verb = KUBE_REPLACE;
    r.subresource = c->subresource;
    r.body = object;
    if (wanted != KUBE_UNCHANGED && (code = kube_call(k, &r, &changed, err)) < 0)
        return code;
    if (ret)
        *ret = changed ? take(&changed) : take(&object);
    return 0;
}

int kube_change(struct kube *k, const struct kube_change *c, json **ret, struct err *err)
{
    int code = -ERR_CHANGED;
    for (unsigned attempt = 1; attempt <= CHANGE_ATTEMPTS; attempt++) {
        code = change_once(k, c, ret, err);
        if (code != -ERR_CHANGED)
            return code;
        clock_sleep(clock_backoff_ns(attempt, 10 * NS_PER_MS, NS_PER_SECOND));
    }
    return code;
}
