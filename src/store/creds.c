/* SPDX-License-Identifier: Apache-2.0 */
#include "creds.h"
#include "creds_private.h"
#include "util/clock.h"
#include "util/metric.h"
#include <stdatomic.h>
#include <stdio.h>

/* Shorter than this before its end, an identity is not used for a new request: it could expire on the way. */
#define MARGIN_NS (15 * (int64_t)NS_PER_SECOND)
#define REFUSED_PAUSE_NS (20 * NS_PER_SECOND)

struct identity *identity_new(void)
{
    struct identity *i = xcalloc(1, sizeof *i);
    i->refs = 1;
    i->born_ns = clock_wall_ns();
    return i;
}

struct identity *identity_ref(struct identity *i)
{
    atomic_fetch_add(&i->refs, 1);
    return i;
}

static void wipe(char *secret)
{
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

void identity_unref(struct identity *i)
{
    if (!i || atomic_fetch_sub(&i->refs, 1) > 1)
        return;
    free(i->access_key_id);
    wipe(i->secret);
    wipe(i->session_token);
    wipe(i->bearer);
    free(i);
}

struct creds *creds_new(const struct creds_source *source, struct identity *own_first)
{
    struct creds *c = xcalloc(1, sizeof *c);
    c->refs = 1;
    c->source = *source;
    c->now = own_first;
    pthread_mutex_init(&c->lock, NULL);
    c->exchanges =
        metric_new(METRIC_COUNTER, "cistern_token_exchanges_total", "Fetches of credentials.", "method,result", NULL);
    c->expiry = metric_series(metric_new(METRIC_GAUGE, "cistern_token_expiry_seconds",
                                         "When the credentials expire, in seconds since 1970.", "method,result", NULL),
                              source->method, "ok");
    return c;
}

void creds_free(struct creds *c)
{
    if (!c || atomic_fetch_sub(&c->refs, 1) > 1)
        return;
    identity_unref(c->now);
    if (c->source.free_self)
        c->source.free_self(c->source.self);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

const char *creds_source_name(const struct creds *c)
{
    return c->source.name;
}

enum freshness { FRESH, AGEING, STALE };

static enum freshness freshness(const struct identity *i)
{
    if (!i)
        return STALE;
    if (i->expires_ns == 0)
        return FRESH;
    int64_t now = clock_wall_ns();
    if (now + MARGIN_NS >= i->expires_ns)
        return STALE;
    return now - i->born_ns >= (i->expires_ns - i->born_ns) / 5 * 4 ? AGEING : FRESH;
}

static void deliver(struct mail *m)
{
    struct creds_waiter *w = container_of(m, struct creds_waiter, mail);
    w->ready(w);
}

/* Is it too soon to ask again after a refusal? */
static bool is_paused(const struct creds *c)
{
    return c->refused_ns && clock_now_ns() - c->refused_ns < REFUSED_PAUSE_NS;
}

struct identity *creds_get(struct creds *c, struct worker *worker, struct creds_waiter *w)
{
    pthread_mutex_lock(&c->lock);
    enum freshness f = freshness(c->now);
    struct identity *i = f == STALE ? NULL : identity_ref(c->now);
    bool fetch = f != FRESH && !c->fetching && !is_paused(c);
    bool refuse = !i && !c->fetching && !fetch;
    c->fetching |= fetch;
    w->mail.deliver = deliver;
    w->code = 0;
    if (refuse) {
        w->code = err_copy(&w->err, &c->refused);
    } else if (!i) {
        w->next = c->waiters;
        c->waiters = w;
    }
    pthread_mutex_unlock(&c->lock);
    if (fetch) {
        atomic_fetch_add(&c->refs, 1);
        c->source.fetch(c, worker);
    }
    if (refuse)
        loop_post(w->home, &w->mail);
    return i;
}

void creds_reject(struct creds *c, const struct identity *i)
{
    pthread_mutex_lock(&c->lock);
    if (c->now == i && c->source.fetch) {
        identity_unref(c->now);
        c->now = NULL;
    }
    pthread_mutex_unlock(&c->lock);
}

void creds_fetched(struct creds *c, struct identity *own_i, const struct err *err)
{
    int64_t expires_ns = own_i ? own_i->expires_ns : 0; /* once it is shared, it may go at any time */
    pthread_mutex_lock(&c->lock);
    struct creds_waiter *waiting = c->waiters;
    c->waiters = NULL;
    c->fetching = false;
    c->refused_ns = own_i ? 0 : clock_now_ns();
    if (own_i) {
        identity_unref(c->now);
        c->now = own_i;
    } else {
        c->refused = *err;
    }
    for (struct creds_waiter *w = waiting; w; w = w->next) {
        w->identity = own_i ? identity_ref(own_i) : NULL;
        w->code = own_i ? 0 : err_copy(&w->err, err);
    }
    pthread_mutex_unlock(&c->lock);
    metric_add(metric_series(c->exchanges, c->source.method, own_i ? "ok" : "error"), 1);
    if (own_i)
        metric_set(c->expiry, expires_ns / (int64_t)NS_PER_SECOND);
    while (waiting) {
        struct creds_waiter *w = waiting;
        waiting = w->next;
        loop_post(w->home, &w->mail);
    }
    creds_free(c); /* the fetch's own reference */
}
