/* SPDX-License-Identifier: Apache-2.0 */
#include "credential_cache.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/map.h"
#include "util/thread.h"

#define REFUSED_PAUSE_NS (20 * NS_PER_SECOND)

/* home: the cache's lock; route and creds are frozen. An entry with users is not removed. */
struct cached_route {
    struct map_node node;
    struct credential_cache *cache;
    uint8_t hash[32]; /* of the route's key */
    unsigned users;
    uint64_t used_ns;
    uint64_t refused_ns; /* when a credential was last replaced because a store rejected it */
    struct creds *creds; /* owned */
    char *texts[5];      /* owned: the strings that the route's views point to */
    struct route route;
    char method[FETCH_METHOD_MAX];
    char principal[FETCH_PRINCIPAL_MAX];
};

struct credential_cache {
    const struct fetcher *fetcher; /* borrowed */
    pthread_mutex_t lock;          /* guards routes */
    struct map routes;             /* owned; by the route's key */
};

/* ---- an entry ---------------------------------------------------------------------------------------------------- */

/* On the thread of the first caller. The others wait, or use the present credential. */
static void fetch(struct creds *c, struct worker *)
{
    struct cached_route *e = creds_self(c);
    struct fetched got;
    struct err err;
    if (fetch_route(e->cache->fetcher, &e->route, &got, &err) < 0) {
        creds_pause(c, got.retry_after_ns);
        creds_fetched(c, NULL, &err);
        return;
    }
    {
        auto_lock(&e->cache->lock);
        memcpy(e->method, got.method, sizeof e->method);
        memcpy(e->principal, got.principal, sizeof e->principal);
    }
    creds_fetched(c, got.identity, NULL);
}

static const char *own_text(struct cached_route *e, size_t slot, const char *text)
{
    return e->texts[slot] = text ? str_dup(str_of(text)) : NULL;
}

static struct cached_route *cached_route_new(struct credential_cache *k, const struct route *r, const uint8_t hash[32])
{
    struct cached_route *e = xcalloc(1, sizeof *e);
    e->cache = k;
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

static void cached_route_free(struct cached_route *own_e)
{
    creds_free(own_e->creds);
    for (size_t i = 0; i < countof(own_e->texts); i++)
        free(own_e->texts[i]);
    free(own_e);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

struct credential_cache *credential_cache_new(const struct fetcher *f)
{
    struct credential_cache *k = xcalloc(1, sizeof *k);
    k->fetcher = f;
    pthread_mutex_init(&k->lock, NULL);
    return k;
}

void credential_cache_free(struct credential_cache *own_k)
{
    if (!own_k)
        return;
    struct cached_route *e;
    map_foreach (&own_k->routes, e, node)
        cached_route_free(e);
    map_done(&own_k->routes);
    pthread_mutex_destroy(&own_k->lock);
    free(own_k);
}

/* The first bytes of a digest are a good hash. */
static uint64_t map_hash(const uint8_t hash[32])
{
    uint64_t h;
    memcpy(&h, hash, sizeof h);
    return h;
}

/* Under the lock. */
static struct cached_route *find_route(struct credential_cache *k, const uint8_t hash[32])
{
    struct cached_route *e;
    map_foreach_hash (&k->routes, map_hash(hash), e, node)
        if (memcmp(e->hash, hash, sizeof e->hash) == 0)
            return e;
    return NULL;
}

/* Under the lock. False: all routes are in use. */
static bool remove_oldest(struct credential_cache *k)
{
    struct cached_route *e, *oldest = NULL;
    map_foreach (&k->routes, e, node)
        if (e->users == 0 && (!oldest || e->used_ns < oldest->used_ns))
            oldest = e;
    if (!oldest)
        return false;
    map_remove(&k->routes, &oldest->node);
    cached_route_free(oldest);
    return true;
}

/* Under the lock. NULL: the cache is full, and all entries are in use. */
static struct cached_route *add(struct credential_cache *k, const struct route *r, const uint8_t hash[32])
{
    if (k->routes.count >= CREDENTIAL_CACHE_MAX && !remove_oldest(k))
        return NULL;
    struct cached_route *e = cached_route_new(k, r, hash);
    map_add(&k->routes, &e->node, map_hash(hash));
    return e;
}

static int begin_use(struct credential_cache *k, const struct route *r, struct cached_route **ret, struct err *err)
{
    uint8_t hash[32];
    auto_sbuf key = SBUF(ROUTE_KEY_MAX);
    int code = route_key(r, &key, err);
    if (code < 0)
        return code;
    sha256(sbuf_str(&key), hash);
    auto_lock(&k->lock);
    struct cached_route *e = find_route(k, hash);
    e = e ? e : add(k, r, hash);
    if (!e)
        return err_set(err, ERR_AGAIN, "%d credentials are being fetched at once", CREDENTIAL_CACHE_MAX);
    e->users++;
    e->used_ns = clock_now_ns();
    *ret = e;
    return 0;
}

static void end_use(struct credential_cache *k, struct cached_route *e)
{
    auto_lock(&k->lock);
    e->users--;
}

/* Must the credential be replaced because a store rejected it? At most once in REFUSED_PAUSE_NS. */
static bool must_replace(struct credential_cache *k, struct cached_route *e, const struct creds_identity *i,
                         const char *refused)
{
    char print[CREDS_FINGERPRINT_SIZE];
    if (!refused[0] || strcmp(creds_identity_fingerprint(i, print), refused) != 0)
        return false;
    auto_lock(&k->lock);
    uint64_t now = clock_now_ns();
    if (e->refused_ns && now - e->refused_ns < REFUSED_PAUSE_NS)
        return false;
    e->refused_ns = now;
    return true;
}

static int get(struct credential_cache *k, struct cached_route *e, const char *refused, struct cached_credential *ret,
               struct err *err)
{
    struct creds_identity *i = NULL;
    int code = creds_wait(e->creds, k->fetcher->worker, &i, err);
    if (code == 0 && must_replace(k, e, i, refused)) {
        creds_reject(e->creds, i);
        creds_identity_unref(take(&i));
        code = creds_wait(e->creds, k->fetcher->worker, &i, err);
    }
    if (code < 0)
        return code;
    ret->identity = i;
    auto_lock(&k->lock);
    memcpy(ret->method, e->method, sizeof ret->method);
    memcpy(ret->principal, e->principal, sizeof ret->principal);
    return 0;
}

int credential_cache_get(struct credential_cache *k, const struct route *r, const char *refused,
                         struct cached_credential *ret, struct err *err)
{
    struct cached_route *e;
    int code = begin_use(k, r, &e, err);
    if (code < 0)
        return code;
    code = get(k, e, refused, ret, err);
    end_use(k, e);
    return code;
}
