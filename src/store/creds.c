/* SPDX-License-Identifier: Apache-2.0 */
#include "creds.h"
#include "creds_private.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/metric.h"
#include <stdatomic.h>

/* Shorter than this before its end, an identity is not used for a new request: it could expire on the way. */
#define MARGIN_NS (15 * (int64_t)NS_PER_SECOND)
#define REFUSED_PAUSE_NS (20 * NS_PER_SECOND)
/* Shorter than the first wait of a request that is tried again, and doubled as those are: each of its attempts asks. */
#define PASSING_PAUSE_NS (100 * NS_PER_MS)

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

void identity_unref(struct identity *i)
{
    if (!i || atomic_fetch_sub(&i->refs, 1) > 1)
        return;
    free(i->access_key_id);
    secret_free(i->secret);
    secret_free(i->session_token);
    secret_free(i->bearer);
    free(i);
}

char *identity_print(const struct identity *i, char *buf)
{
    uint8_t sum[32];
    const char *secret = i->bearer ? i->bearer : i->secret;
    sha256(secret ? str_of(secret) : STR_NULL, sum);
    return hex_text(sum, (IDENTITY_PRINT_MAX - 1) / 2, buf);
}

struct creds *creds_new(const struct creds_source *source, struct identity *own_first)
{
    struct creds *c = xcalloc(1, sizeof *c);
    c->refs = 1;
    c->source = *source;
    c->now = own_first;
    pthread_mutex_init(&c->lock, NULL);
    if (!source->method)
        return c;
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

struct creds *creds_new_anonymous(void)
{
    struct identity *nobody = identity_new();
    nobody->anonymous = true;
    return creds_new(&(struct creds_source){.name = "anonymous", .method = "anonymous"}, nobody);
}

int creds_open_common(const struct store_options *o, const char *scheme, struct creds **ret, struct err *err)
{
    *ret = NULL;
    if (o->identity)
        *ret = creds_new(&(struct creds_source){.name = "the identity that was given"}, identity_ref(o->identity));
    else if (o->auth == STORE_AUTH_ANONYMOUS)
        *ret = creds_new_anonymous();
    else if (creds_has_broker())
        return creds_open_broker(scheme, ret, err);
    return 0;
}

void *creds_self(const struct creds *c)
{
    return c->source.self;
}

void creds_pause(struct creds *c, uint64_t pause_ns)
{
    c->retry_after_ns = pause_ns;
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
    return c->refused_ns && clock_now_ns() - c->refused_ns < c->pause_ns;
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

bool creds_reject(struct creds *c, const struct identity *i)
{
    bool is_fetched = c->source.fetch != NULL;
    pthread_mutex_lock(&c->lock);
    if (c->now == i && is_fetched) {
        identity_print(i, c->refused_print);
        identity_unref(c->now);
        c->now = NULL;
    }
    pthread_mutex_unlock(&c->lock);
    return is_fetched;
}

bool creds_refused_print(struct creds *c, char *buf)
{
    pthread_mutex_lock(&c->lock);
    memcpy(buf, c->refused_print, IDENTITY_PRINT_MAX);
    pthread_mutex_unlock(&c->lock);
    return buf[0] != '\0';
}

/* How long nobody asks after a fetch that failed. A refusal stands for a while; a server that was restarting, or a
 * connection that broke, may do better at once. */
static uint64_t pause_after(struct creds *c, enum err_code code)
{
    bool passes = code == ERR_AGAIN || code == ERR_TIMEOUT || code == ERR_IO;
    c->failures = passes ? c->failures + 1 : 0;
    return passes ? min_u64(PASSING_PAUSE_NS << min_u64(c->failures - 1, 20), REFUSED_PAUSE_NS) : REFUSED_PAUSE_NS;
}

void creds_fetched(struct creds *c, struct identity *own_i, const struct err *err)
{
    int64_t expires_ns = own_i ? own_i->expires_ns : 0; /* once it is shared, it may go at any time */
    pthread_mutex_lock(&c->lock);
    struct creds_waiter *waiting = c->waiters;
    c->waiters = NULL;
    c->fetching = false;
    c->refused_ns = own_i ? 0 : clock_now_ns();
    if (own_i)
        c->failures = 0;
    else
        c->pause_ns = max_u64(pause_after(c, err->code), c->retry_after_ns);
    c->retry_after_ns = 0;
    if (own_i) {
        identity_unref(c->now);
        c->now = own_i;
        c->refused_print[0] = '\0';
    } else {
        c->refused = *err;
    }
    for (struct creds_waiter *w = waiting; w; w = w->next) {
        w->identity = own_i ? identity_ref(own_i) : NULL;
        w->code = own_i ? 0 : err_copy(&w->err, err);
    }
    pthread_mutex_unlock(&c->lock);
    if (c->exchanges)
        metric_add(metric_series(c->exchanges, c->source.method, own_i ? "ok" : "error"), 1);
    if (c->exchanges && own_i)
        metric_set(c->expiry, expires_ns / (int64_t)NS_PER_SECOND);
    while (waiting) {
        struct creds_waiter *w = waiting;
        waiting = w->next;
        loop_post(w->home, &w->mail);
    }
    creds_free(c); /* the fetch's own reference */
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

struct patient {
    struct creds_waiter waiter;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t is_told;
    bool told;
};

static void told(struct creds_waiter *w)
{
    struct patient *p = container_of(w, struct patient, waiter);
    pthread_mutex_lock(&p->lock);
    p->told = true;
    pthread_cond_signal(&p->is_told);
    pthread_mutex_unlock(&p->lock);
}

int creds_wait(struct creds *c, struct worker *worker, struct identity **ret, struct err *err)
{
    struct patient p = {.waiter = {.home = worker->loop, .ready = told},
                        .lock = PTHREAD_MUTEX_INITIALIZER,
                        .is_told = PTHREAD_COND_INITIALIZER};
    struct identity *i = creds_get(c, worker, &p.waiter);
    if (!i) {
        pthread_mutex_lock(&p.lock);
        while (!p.told)
            pthread_cond_wait(&p.is_told, &p.lock);
        pthread_mutex_unlock(&p.lock);
        i = p.waiter.identity;
    }
    if (!i)
        return err_copy(err, &p.waiter.err);
    *ret = i;
    return 0;
}
