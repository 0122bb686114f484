/* SPDX-License-Identifier: Apache-2.0 */
#include "keep.h"
#include "util/clock.h"
#include "util/hash.h"
#include <pthread.h>
#include <stdio.h>

#define REFUSED_PAUSE_NS (20 * NS_PER_SECOND)

enum { SLOTS = 2 * KEEP_MAX };

/* home: the keep's lock, but for route and creds, which are frozen. One with users stays. */
struct entry {
    struct entry *next; /* of its slot */
    struct keep *keep;
    uint8_t hash[32]; /* of the way's key */
    unsigned users;
    uint64_t used_ns;
    uint64_t refused_ns; /* when a credential of it was last given up because a store refused it */
    struct creds *creds; /* owned */
    char *texts[5];      /* owned: what the route's views point to */
    struct route route;
    char method[FETCH_METHOD_MAX];
    char principal[FETCH_PRINCIPAL_MAX];
};

struct keep {
    const struct fetcher *fetcher; /* borrowed */
    pthread_mutex_t lock;          /* guards what follows */
    struct entry *slots[SLOTS];
    size_t count;
};

/* ---- an entry ---------------------------------------------------------------------------------------------------- */

/* On the thread of whoever asked first: the others wait, or go on with the credential in hand. */
static void fetch(struct creds *c, struct worker *w)
{
    struct entry *e = creds_self(c);
    struct fetched got;
    struct err err;
    uint64_t retry_after_ns;
    (void)w;
    if (fetch_route(e->keep->fetcher, &e->route, &got, &retry_after_ns, &err) < 0) {
        creds_pause(c, retry_after_ns);
        creds_fetched(c, NULL, &err);
        return;
    }
    pthread_mutex_lock(&e->keep->lock);
    memcpy(e->method, got.method, sizeof e->method);
    memcpy(e->principal, got.principal, sizeof e->principal);
    pthread_mutex_unlock(&e->keep->lock);
    creds_fetched(c, got.identity, NULL);
}

static const char *own_text(struct entry *e, size_t slot, const char *text)
{
    return e->texts[slot] = text ? str_dup(str_of(text)) : NULL;
}

static struct entry *entry_new(struct keep *k, const struct route *r, const uint8_t hash[32])
{
    struct entry *e = xcalloc(1, sizeof *e);
    e->keep = k;
    memcpy(e->hash, hash, sizeof e->hash);
    e->route = *r;
    e->route.ns = own_text(e, 0, r->ns);
    e->route.name = own_text(e, 1, r->name);
    e->route.audience = own_text(e, 2, r->audience);
    e->route.provider = own_text(e, 3, r->provider);
    e->route.region = own_text(e, 4, r->region);
    e->creds = creds_new(&(struct creds_source){.name = "the broker's own", .self = e, .fetch = fetch}, NULL);
    return e;
}

static void entry_free(struct entry *own_e)
{
    creds_free(own_e->creds);
    for (size_t i = 0; i < countof(own_e->texts); i++)
        free(own_e->texts[i]);
    free(own_e);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

struct keep *keep_new(const struct fetcher *f)
{
    struct keep *k = xcalloc(1, sizeof *k);
    k->fetcher = f;
    pthread_mutex_init(&k->lock, NULL);
    return k;
}

void keep_free(struct keep *own_k)
{
    if (!own_k)
        return;
    for (size_t i = 0; i < SLOTS; i++)
        for (struct entry *e; (e = own_k->slots[i]) != NULL;) {
            own_k->slots[i] = e->next;
            entry_free(e);
        }
    pthread_mutex_destroy(&own_k->lock);
    free(own_k);
}

static struct entry **slot_of(struct keep *k, const uint8_t hash[32])
{
    return &k->slots[((size_t)hash[0] << 8 | hash[1]) % SLOTS];
}

/* Under the lock. */
static struct entry **oldest(struct keep *k)
{
    struct entry **found = NULL;
    for (size_t i = 0; i < SLOTS; i++)
        for (struct entry **at = &k->slots[i]; *at; at = &(*at)->next)
            if ((*at)->users == 0 && (!found || (*at)->used_ns < (*found)->used_ns))
                found = at;
    return found;
}

/* Under the lock. NULL: it is full, and all of it is in use. */
static struct entry *add(struct keep *k, const struct route *r, const uint8_t hash[32])
{
    if (k->count >= KEEP_MAX) {
        struct entry **at = oldest(k);
        if (!at)
            return NULL;
        struct entry *gone = *at;
        *at = gone->next;
        k->count--;
        entry_free(gone);
    }
    struct entry *e = entry_new(k, r, hash);
    struct entry **slot = slot_of(k, hash);
    e->next = *slot;
    *slot = e;
    k->count++;
    return e;
}

static int begin_use(struct keep *k, const struct route *r, struct entry **ret, struct err *err)
{
    uint8_t hash[32];
    auto_sbuf key;
    sbuf_init(&key, ROUTE_KEY_MAX);
    int code = route_key(r, &key, err);
    if (code < 0)
        return code;
    sha256(sbuf_str(&key), hash);
    pthread_mutex_lock(&k->lock);
    struct entry *e = *slot_of(k, hash);
    while (e && memcmp(e->hash, hash, sizeof e->hash) != 0)
        e = e->next;
    e = e ? e : add(k, r, hash);
    if (e) {
        e->users++;
        e->used_ns = clock_now_ns();
    }
    pthread_mutex_unlock(&k->lock);
    if (!e)
        return err_set(err, ERR_AGAIN, "%d kinds of credentials are being fetched at once", KEEP_MAX);
    *ret = e;
    return 0;
}

static void end_use(struct keep *k, struct entry *e)
{
    pthread_mutex_lock(&k->lock);
    e->users--;
    pthread_mutex_unlock(&k->lock);
}

/* Is another due because a store refused this one? A caller who says so again and again gets no exchange for each. */
static bool give_up(struct keep *k, struct entry *e, const struct identity *i, const char *refused)
{
    char print[IDENTITY_PRINT_MAX];
    if (!refused[0] || strcmp(identity_print(i, print), refused) != 0)
        return false;
    pthread_mutex_lock(&k->lock);
    uint64_t now = clock_now_ns();
    bool due = e->refused_ns == 0 || now - e->refused_ns >= REFUSED_PAUSE_NS;
    if (due)
        e->refused_ns = now;
    pthread_mutex_unlock(&k->lock);
    return due;
}

static int get(struct keep *k, struct entry *e, const char *refused, struct kept *ret, struct err *err)
{
    struct identity *i = NULL;
    int code = creds_wait(e->creds, k->fetcher->worker, &i, err);
    if (code == 0 && give_up(k, e, i, refused)) {
        creds_reject(e->creds, i);
        identity_unref(take(&i));
        code = creds_wait(e->creds, k->fetcher->worker, &i, err);
    }
    if (code < 0)
        return code;
    ret->identity = i;
    pthread_mutex_lock(&k->lock);
    memcpy(ret->method, e->method, sizeof ret->method);
    memcpy(ret->principal, e->principal, sizeof ret->principal);
    pthread_mutex_unlock(&k->lock);
    return 0;
}

int keep_get(struct keep *k, const struct route *r, const char *refused, struct kept *ret, struct err *err)
{
    struct entry *e;
    int code = begin_use(k, r, &e, err);
    if (code < 0)
        return code;
    code = get(k, e, refused, ret, err);
    end_use(k, e);
    return code;
}
