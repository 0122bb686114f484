/* SPDX-License-Identifier: Apache-2.0 */
/* Lists one key of each prefix, and tests the right to write below the prefix of exports. Each test has a loop of its
 * own: a store may have its own CA, and one that does not answer must not delay other requests. */
#include "probe.h"
#include "store/single.h"
#include "store/writable.h"
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
    struct store_job *job; /* the running listing; the loop's */
    struct store_writable writable;
    struct mail giving_up;
    uint64_t until_ns; /* monotonic */
    sem_t over;
    bool is_empty; /* the URI selects no object */
    int code;
    struct err err;
};

static void answered(void *ctx, const struct store_reply *r, const struct store_object *objects, size_t count,
                     struct str)
{
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

static void tested(void *ctx, const struct err *err)
{
    struct probe_request *q = ctx;
    q->code = err ? err_copy(&q->err, err) : 0;
    sem_post(&q->over);
}

static void start_writing(struct mail *m)
{
    struct probe_request *q = container_of(m, struct probe_request, mail);
    q->writable.store = q->store;
    q->writable.worker = &q->worker;
    q->writable.ctx = q;
    q->writable.on_done = tested;
    store_writable_test(&q->writable);
}

static void give_up(struct mail *m)
{
    struct probe_request *q = container_of(m, struct probe_request, giving_up);
    if (q->job)
        store_cancel(q->job);
    store_writable_cancel(&q->writable);
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
        return err_fail(err, ERR_TIMEOUT, CIS_REPLY_TIMEOUT,
                        "bucket '%.*s': the store did not finish its reply in time", STR_FMT(store_bucket(q->store)));
    return q->code < 0 ? err_copy(err, &q->err) : 0;
}

/* Opens the store that `o` names, and does what q->mail does. */
static int ask(struct probe_request *q, struct store_options *o, const struct spec_source *s, struct err *err)
{
    o->path_style = s->path_style;
    o->billing = s->requester_pays;
    o->retry = (struct store_retry){.attempts_max = 2, .elapsed_max_ns = STALL_NS};
    q->giving_up.deliver = give_up;
    int r = store_open(o, &q->store, err);
    if (r < 0)
        return r;
    sem_init(&q->over, 0, 0);
    r = put(q, err);
    worker_done(&q->worker);
    sem_destroy(&q->over);
    return r;
}

static int ask_source(const struct spec *spec, const struct spec_uri *uri, struct creds_identity *identity,
                      const struct guard *guard, uint64_t until_ns, bool *ret_answered, struct err *err)
{
    const struct spec_source *s = &spec->source;
    struct probe_request q = {.mail.deliver = start_listing, .until_ns = until_ns};
    struct store_options o = {.uri = str_of(uri->text),
                              .endpoint = s->endpoint,
                              .region = s->region,
                              .ca = str_of(s->ca_bundle),
                              .identity = identity,
                              .guard = guard};
    int r = ask(&q, &o, s, err);
    *ret_answered = r == 0;
    if (r == 0 && q.is_empty && s->on_empty == ON_EMPTY_FAIL)
        r = store_found_nothing(q.store, uri->text, 0, err);
    store_free(q.store);
    return r;
}

/* The destination, as the Job chooses it. */
static int ask_export(const struct spec *spec, struct creds_identity *identity, const struct guard *guard,
                      uint64_t until_ns, struct err *err)
{
    const struct spec_export *e = &spec->export;
    struct spec_server server = spec_export_server(spec);
    struct probe_request q = {
        .mail.deliver = start_writing, .until_ns = until_ns, .writable.storage_class = e->storage_class};
    struct store_options o = {.uri = str_of(e->uri.text),
                              .endpoint = server.endpoint,
                              .region = server.region,
                              .ca = str_of(server.ca_bundle),
                              .identity = identity,
                              .guard = guard};
    int r = ask(&q, &o, &spec->source, err);
    store_free(q.store);
    return r;
}

/* ---- identity ---------------------------------------------------------------------------------------------------- */

/* The credential that a Job would get, by the same rules. They read only the fields that a volume copies from its
 * source. */
static int find_identity(struct credential_cache *k, const struct route_rules *rules, const struct api_source *s,
                         const struct spec *spec, const struct spec_uri *uri, struct cached_credential *ret,
                         struct err *err)
{
    struct api_volume volume = {.meta.name = s->meta.name, .source_namespace = s->meta.namespace};
    struct route routes[ROUTES_MAX];
    size_t count;
    enum creds_kind kind = store_creds_kind(uri ? uri->view.scheme : NULL);
    int r = route_find(&volume, spec, uri == NULL, kind, rules, routes, &count, err);
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

/* `uri` NULL: the source is only exported to. */
static int try_prefix(struct credential_cache *k, const struct route_rules *rules, const struct api_source *s,
                      const struct spec *spec, const struct spec_uri *uri, uint64_t until_ns, struct api_probe *ret,
                      struct err *err)
{
    struct cached_credential cached = {0};
    int r = find_identity(k, rules, s, spec, uri, &cached, err);
    if (r < 0)
        return r;
    note_identity(&cached, ret);
    r = uri ? ask_source(spec, uri, cached.identity, rules->guard, until_ns, &ret->has_answered, err) : 0;
    creds_identity_unref(cached.identity);
    return r == -ERR_DENIED ? err_wrap(err, "as %s", ret->principal) : r;
}

static void try_export(struct credential_cache *k, const struct route_rules *rules, const struct api_source *s,
                       const struct spec *spec, uint64_t until_ns, struct api_probe *ret)
{
    struct err err;
    struct cached_credential cached = {0};
    ret->tried_export = true;
    int r = find_identity(k, rules, s, spec, NULL, &cached, &err);
    if (r == 0)
        r = ask_export(spec, cached.identity, rules->guard, until_ns, &err);
    if (r == -ERR_DENIED && cached.identity)
        r = err_wrap(&err, "as %s", cached.principal);
    if (r < 0)
        ret->export_err = err;
    creds_identity_unref(cached.identity);
}

static int try_source(struct credential_cache *k, const struct route_rules *rules, const struct api_source *s,
                      const struct spec *spec, uint64_t until_ns, struct api_probe *ret, struct err *err)
{
    size_t count = spec_source_count(spec);
    int r = count == 0 ? try_prefix(k, rules, s, spec, NULL, until_ns, ret, err) : 0;
    for (size_t i = 0; i < count && r == 0; i++) {
        struct spec_part part = spec_source_at(spec, i);
        r = try_prefix(k, rules, s, spec, &part.uri, until_ns, ret, err);
    }
    return r;
}

int probe_source(struct credential_cache *k, const struct route_rules *rules, const struct api_source *s,
                 struct api_probe *ret, struct err *err)
{
    auto_spec spec = NULL;
    *ret = (struct api_probe){0};
    int r = api_source_spec(s, &spec, err);
    if (r < 0)
        return r;
    uint64_t until_ns = clock_now_ns() + WHOLE_NS;
    r = try_source(k, rules, s, spec, until_ns, ret, err);
    if (spec->export.uri.text && clock_now_ns() < until_ns)
        try_export(k, rules, s, spec, until_ns, ret);
    return r;
}
