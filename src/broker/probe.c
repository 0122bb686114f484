/* SPDX-License-Identifier: Apache-2.0 */
/* Lists one key of each prefix, on a loop of its own: a store may have its own CA, and one that does not answer must
 * not delay other requests. */
#include "probe.h"
#include "store/single.h"
#include "util/clock.h"
#include <semaphore.h>
#include <stdio.h>

#define CONNECT_NS (5 * NS_PER_SECOND)
#define STALL_NS (10 * NS_PER_SECOND)
/* Limit for all prefixes of a source together: a server that sends a byte now and then never stalls. */
#define WHOLE_NS (30 * NS_PER_SECOND)

/* home: its loop until `over` is set; the caller before and after. */
struct probe_request {
    struct mail mail;
    struct worker worker;  /* has only a loop and a web: no disk is used */
    struct store *store;   /* owned */
    struct store_job *job; /* the running request; the loop's */
    struct mail giving_up;
    uint64_t until_ns; /* monotonic */
    sem_t over;
    bool is_empty; /* the URI selects no object */
    int code;
    struct err err;
};

static void answered(void *ctx, const struct store_reply *r, const struct store_object *objects, size_t count,
                     struct str next_token)
{
    (void)next_token;
    struct probe_request *q = ctx;
    q->job = NULL;
    q->code = r->code;
    q->is_empty = count == 0 || (store_names_object(q->store) && !str_eq(objects[0].key, store_prefix(q->store)));
    if (r->code < 0)
        q->err = r->err;
    sem_post(&q->over);
}

static void start_listing(struct mail *m)
{
    struct probe_request *q = container_of(m, struct probe_request, mail);
    const struct store_page page = {.prefix = store_prefix(q->store), .keys_max = 1, .ctx = q, .on_done = answered};
    q->job = store_list_page(q->store, &q->worker, &page);
}

static void give_up(struct mail *m)
{
    struct probe_request *q = container_of(m, struct probe_request, giving_up);
    if (q->job)
        store_cancel(q->job);
}

static int too_late(const struct probe_request *q, struct err *err)
{
    return err_fail(err, ERR_TIMEOUT, CIS_REPLY_TIMEOUT, "bucket '%.*s': the store did not finish its reply in time",
                    STR_FMT(store_bucket(q->store)));
}

/* *ret_late: the request took too long and was cancelled. */
static void await(struct probe_request *q, bool *ret_late)
{
    struct timespec t;
    int r;
    do {
        uint64_t ns = q->until_ns;
        t = (struct timespec){.tv_sec = (time_t)(ns / NS_PER_SECOND), .tv_nsec = (long)(ns % NS_PER_SECOND)};
        r = sem_clockwait(&q->over, CLOCK_MONOTONIC, &t);
    } while (r != 0 && errno == EINTR);
    *ret_late = r != 0;
    if (r == 0)
        return;
    loop_post(q->worker.loop, &q->giving_up);
    while (sem_wait(&q->over) != 0)
        ;
}

static int put(struct probe_request *q, struct err *err)
{
    /* Two connections: the listing, and its second request. */
    struct web_options web = {.connect_timeout_ns = CONNECT_NS, .stall_timeout_ns = STALL_NS, .connections_max = 2};
    store_trust(q->store, &web);
    int r = loop_new("probe", &q->worker.loop, err);
    if (r == 0)
        r = web_new(q->worker.loop, &web, &q->worker.web, err);
    if (r == 0)
        r = loop_start(q->worker.loop, err);
    if (r < 0)
        return r;
    loop_post(q->worker.loop, &q->mail);
    bool is_late;
    await(q, &is_late);
    if (is_late && q->code < 0)
        return too_late(q, err);
    return q->code < 0 ? err_copy(err, &q->err) : 0;
}

static int ask_store(const struct spec *spec, const char *uri, struct creds_identity *identity,
                     const struct guard *guard, uint64_t until_ns, bool *ret_answered, struct err *err)
{
    const struct spec_source *s = &spec->source;
    struct probe_request q = {.mail.deliver = start_listing, .giving_up.deliver = give_up, .until_ns = until_ns};
    const struct store_options o = {.uri = str_of(uri),
                                    .endpoint = s->endpoint,
                                    .region = s->region,
                                    .ca = s->ca_bundle ? str_of(s->ca_bundle) : STR_NULL,
                                    .path_style = s->path_style,
                                    .billing = s->requester_pays,
                                    .identity = identity,
                                    .guard = guard,
                                    .retry = {.attempts_max = 2, .elapsed_max_ns = STALL_NS}};
    int r = store_open(&o, &q.store, err);
    if (r < 0)
        return r;
    sem_init(&q.over, 0, 0);
    r = put(&q, err);
    *ret_answered = r == 0;
    if (r == 0 && q.is_empty && s->on_empty == ON_EMPTY_FAIL)
        r = store_found_nothing(q.store, uri, 0, err);
    worker_done(&q.worker);
    store_free(q.store);
    sem_destroy(&q.over);
    return r;
}

/* ---- identity ---------------------------------------------------------------------------------------------------- */

/* The credential that a Job would get, by the same rules. They read only the fields that a volume copies from its
 * source. */
static int find_identity(struct credential_cache *k, const struct route_rules *rules, const struct api_source *s,
                         const struct spec *spec, const char *uri, struct cached_credential *ret, struct err *err)
{
    struct api_volume volume = {.meta.name = s->meta.name, .source_namespace = s->meta.namespace};
    struct route routes[ROUTES_MAX];
    size_t count;
    int r = route_find(&volume, spec, uri == NULL, store_creds_kind(str_of(uri)), rules, routes, &count, err);
    if (r == 0)
        r = credential_cache_get(k, &routes[0], "", ret, err);
    return r < 0 ? err_wrap(err, "BucketSource '%s/%s'", s->meta.namespace, s->meta.name) : 0;
}

static void note_identity(const struct cached_credential *k, struct api_probe *ret)
{
    ret->has_identity = true;
    ret->expires_ns = k->identity->anonymous ? 0 : k->identity->expires_ns;
    snprintf(ret->method, sizeof ret->method, "%s", k->method);
    snprintf(ret->principal, sizeof ret->principal, "%s", k->principal);
}

/* `uri` NULL: the source is only exported to, which may need no permission to list. */
static int try_prefix(struct credential_cache *k, const struct route_rules *rules, const struct api_source *s,
                      const struct spec *spec, const char *uri, uint64_t until_ns, struct api_probe *ret,
                      struct err *err)
{
    struct cached_credential cached = {0};
    int r = find_identity(k, rules, s, spec, uri, &cached, err);
    if (r < 0)
        return r;
    note_identity(&cached, ret);
    r = uri ? ask_store(spec, uri, cached.identity, rules->guard, until_ns, &ret->has_answered, err) : 0;
    creds_identity_unref(cached.identity);
    return r == -ERR_DENIED ? err_wrap(err, "as %s", ret->principal) : r;
}

int probe_source(struct credential_cache *k, const struct route_rules *rules, const struct api_source *s,
                 struct api_probe *ret, struct err *err)
{
    auto_spec spec = NULL;
    *ret = (struct api_probe){0};
    int r = api_source_spec(s, &spec, err);
    if (r < 0)
        return r;
    size_t count = spec_source_count(spec);
    uint64_t until_ns = clock_now_ns() + WHOLE_NS;
    if (count == 0)
        return try_prefix(k, rules, s, spec, NULL, until_ns, ret, err);
    for (size_t i = 0; i < count && r == 0; i++)
        r = try_prefix(k, rules, s, spec, spec_source_at(spec, i).uri, until_ns, ret, err);
    return r;
}
