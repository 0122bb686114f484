/* SPDX-License-Identifier: Apache-2.0 */
#include "creds/creds.h"
#include "private.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/metric.h"
#include "util/thread.h"
#include <stdatomic.h>

/* An identity with less life than this is not used for a new request: it could expire on the way. */
#define MARGIN_NS (15 * (int64_t)NS_PER_SECOND)
#define REFUSED_PAUSE_NS (20 * NS_PER_SECOND)
/* Less than the first backoff of a retried request, and doubled as that is: each attempt asks for credentials. */
#define PASSING_PAUSE_NS (100 * NS_PER_MS)

struct creds_identity *creds_identity_new(void)
{
    struct creds_identity *i = xcalloc(1, sizeof *i);
    i->refs = 1;
    i->born_ns = clock_wall_ns();
    return i;
}

struct creds_identity *creds_identity_ref(struct creds_identity *i)
{
    atomic_fetch_add(&i->refs, 1);
    return i;
}

void creds_identity_unref(struct creds_identity *i)
{
    if (!i || atomic_fetch_sub(&i->refs, 1) > 1)
        return;
    free(i->access_key_id);
    secret_free(i->secret);
    secret_free(i->session_token);
    secret_free(i->bearer);
    free(i);
}

char *creds_identity_fingerprint(const struct creds_identity *i, char *buf)
{
    uint8_t sum[32];
    const char *secret = i->bearer ? i->bearer : i->secret;
    sha256(secret ? str_of(secret) : STR_NULL, sum);
    return hex_text(sum, (CREDS_FINGERPRINT_SIZE - 1) / 2, buf);
}

struct creds *creds_new(const struct creds_source *source, struct creds_identity *own_first)
{
    struct creds *c = xcalloc(1, sizeof *c);
    c->refs = 1;
    c->source = *source;
    c->now = own_first;
    pthread_mutex_init(&c->lock, NULL);
    if (!source->method)
        return c;
    c->exchanges = metric_new(METRIC_COUNTER, "cistern_token_exchanges_total",
                              "Credentials that were requested from a token service.", "method,result", NULL);
    c->expiry = metric_series(metric_new(METRIC_GAUGE, "cistern_token_expiry_seconds",
                                         "Expiry of the process's own credentials, in seconds since 1970.",
                                         "method,result", NULL),
                              source->method, "ok");
    return c;
}

void creds_free(struct creds *c)
{
    if (!c || atomic_fetch_sub(&c->refs, 1) > 1)
        return;
    creds_identity_unref(c->now);
    if (c->source.free_self)
        c->source.free_self(c->source.self);
    pthread_mutex_destroy(&c->lock);
    free(c->skipped);
    free(c);
}

struct creds *creds_new_anonymous(void)
{
    struct creds_identity *nobody = creds_identity_new();
    nobody->anonymous = true;
    return creds_new(&(struct creds_source){.name = "anonymous", .method = "anonymous"}, nobody);
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

const char *creds_skipped(const struct creds *c)
{
    return c->skipped ? c->skipped : "";
}

void creds_note_skipped(struct creds *c, struct sbuf *skipped)
{
    (void)!sbuf_take(skipped, &c->skipped, ERR_IGNORED); /* a text for people: omit it if it is too long */
}

enum freshness { FRESH, AGEING, STALE };

static enum freshness freshness(const struct creds_identity *i)
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

/* Is a fetch too early after a refused one? */
static bool is_paused(const struct creds *c)
{
    return c->refused_ns && clock_now_ns() - c->refused_ns < c->pause_ns;
}

struct creds_identity *creds_get(struct creds *c, struct worker *worker, struct creds_waiter *w)
{
    pthread_mutex_lock(&c->lock);
    enum freshness f = freshness(c->now);
    bool is_fetched = c->source.fetch != NULL; /* else there is no other identity, however old it is */
    struct creds_identity *i = f == STALE && is_fetched ? NULL : creds_identity_ref(c->now);
    bool fetch = is_fetched && f != FRESH && !c->fetching && !is_paused(c);
    bool refuse = !i && !c->fetching && !fetch;
    c->fetching |= fetch;
    w->mail.deliver = deliver;
    w->code = 0;
    if (refuse) {
        w->code = err_copy(&w->err, &c->refused);
    } else if (!i) {
        list_add(&c->waiters, &w->in_waiters);
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

bool creds_reject(struct creds *c, const struct creds_identity *i)
{
    bool is_fetched = c->source.fetch != NULL;
    auto_lock(&c->lock);
    if (c->now == i && is_fetched) {
        creds_identity_fingerprint(i, c->rejected_fingerprint);
        creds_identity_unref(c->now);
        c->now = NULL;
    }
    return is_fetched;
}

bool creds_rejected_fingerprint(struct creds *c, char *buf)
{
    auto_lock(&c->lock);
    memcpy(buf, c->rejected_fingerprint, CREDS_FINGERPRINT_SIZE);
    return buf[0] != '\0';
}

/* Time until the next fetch after a failed one. A refusal is cached for a while. A restarting server or a lost
 * connection may recover at once, and a missing Secret may be created. */
static uint64_t pause_after(struct creds *c, enum err_code code)
{
    bool passes = code == ERR_AGAIN || code == ERR_TIMEOUT || code == ERR_IO || code == ERR_NOT_FOUND;
    c->failures = passes ? c->failures + 1 : 0;
    return passes ? clock_doubled_ns(c->failures - 1, PASSING_PAUSE_NS, REFUSED_PAUSE_NS) : REFUSED_PAUSE_NS;
}

void creds_fetched(struct creds *c, struct creds_identity *own_i, const struct err *err)
{
    struct creds_waiter *w;
    int64_t expires_ns = own_i ? own_i->expires_ns : 0; /* once it is shared, another thread may free it at any time */
    pthread_mutex_lock(&c->lock);
    struct list waiting = c->waiters;
    c->waiters = (struct list){0};
    c->fetching = false;
    c->refused_ns = own_i ? 0 : clock_now_ns();
    if (own_i)
        c->failures = 0;
    else
        c->pause_ns = max_u64(pause_after(c, err->code), c->retry_after_ns);
    c->retry_after_ns = 0;
    if (own_i) {
        creds_identity_unref(c->now);
        c->now = own_i;
        c->rejected_fingerprint[0] = '\0';
    } else {
        c->refused = *err;
    }
    list_foreach (&waiting, w, in_waiters) {
        w->identity = own_i ? creds_identity_ref(own_i) : NULL;
        w->code = own_i ? 0 : err_copy(&w->err, err);
    }
    pthread_mutex_unlock(&c->lock);
    if (c->exchanges)
        metric_add(metric_series(c->exchanges, c->source.method, own_i ? "ok" : "error"), 1);
    if (c->exchanges && own_i)
        metric_set(c->expiry, expires_ns / (int64_t)NS_PER_SECOND);
    while ((w = list_pop(&waiting, struct creds_waiter, in_waiters)) != NULL)
        loop_post(w->home, &w->mail);
    creds_free(c); /* the fetch's own reference */
}

void creds_refused(struct creds *c, const struct err *why)
{
    struct err err = *why;
    err_wrap(&err, "cannot get credentials from %s", c->source.name);
    if (!err.id)
        err_advise(&err, CIS_TOKEN_EXCHANGE_FAILED);
    creds_fetched(c, NULL, &err);
}

void creds_replied(struct creds *c,
                   int (*read)(int status, struct str body, struct creds_identity **ret, struct err *err), int status,
                   struct str body, const struct err *err)
{
    struct creds_identity *i = NULL;
    struct err why;
    if (!err && read(status, body, &i, &why) < 0)
        err = &why;
    if (err)
        creds_refused(c, err);
    else
        creds_fetched(c, i, NULL);
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

struct blocking_waiter {
    struct mail mail;
    struct creds_waiter waiter;
    struct creds *creds;
    struct worker *worker;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t is_ready;
    bool ready;
};

static void wake(struct creds_waiter *w)
{
    struct blocking_waiter *b = container_of(w, struct blocking_waiter, waiter);
    auto_lock(&b->lock);
    b->ready = true;
    pthread_cond_signal(&b->is_ready);
}

/* The waiter may free `b` once it is called. */
static void begin_wait(struct mail *m)
{
    struct blocking_waiter *b = container_of(m, struct blocking_waiter, mail);
    struct creds_identity *i = creds_get(b->creds, b->worker, &b->waiter);
    if (!i)
        return;
    b->waiter.identity = i;
    wake(&b->waiter);
}

static int wait_for_identity(struct creds *c, struct worker *worker, bool on_loop, struct creds_identity **ret,
                             struct err *err)
{
    struct blocking_waiter b = {.mail.deliver = begin_wait,
                                .waiter = {.home = worker->loop, .ready = wake},
                                .creds = c,
                                .worker = worker,
                                .lock = PTHREAD_MUTEX_INITIALIZER,
                                .is_ready = PTHREAD_COND_INITIALIZER};
    if (on_loop)
        loop_post(worker->loop, &b.mail);
    else
        begin_wait(&b.mail);
    pthread_mutex_lock(&b.lock);
    while (!b.ready)
        pthread_cond_wait(&b.is_ready, &b.lock);
    pthread_mutex_unlock(&b.lock);
    if (!b.waiter.identity)
        return err_copy(err, &b.waiter.err);
    *ret = b.waiter.identity;
    return 0;
}

int creds_wait(struct creds *c, struct worker *worker, struct creds_identity **ret, struct err *err)
{
    return wait_for_identity(c, worker, false, ret, err);
}

int creds_wait_on_loop(struct creds *c, struct worker *worker, struct creds_identity **ret, struct err *err)
{
    return wait_for_identity(c, worker, true, ret, err);
}
