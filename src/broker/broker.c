/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/broker.h"
#include "caller.h"
#include "credential_cache.h"
#include "http/post_server.h"
#include "io/ticker.h"
#include "messages.h"
#include "probe.h"
#include "publish.h"
#include "refusal_limit.h"
#include "util/clock.h"

#define CHECK_NS (60 * NS_PER_SECOND)
#define CHECK_SOON_NS (2 * NS_PER_SECOND) /* interval while no certificate is served, or after a failed check */

struct broker {
    struct broker_options options;                              /* frozen; its texts are those below */
    char *ns, *node_account, *job_account, *project, *provider; /* owned */
    struct kube *kube;                                          /* borrowed */
    struct worker worker;                                       /* loop: borrowed; web: owned. Nothing else is used */
    struct fetcher fetcher;
    struct callers *callers;
    struct credential_cache *cache;
    struct post_server *calls;
    struct refusal_limit refusals;
    struct ticker *ticker; /* owned; thread "broker": renews the certificate */
    char *served;          /* owned; only the ticker uses it: the served certificate, NULL: none */
};

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* The state of a request, for the log and for the reply. */
struct progress {
    struct credential_request request;
    struct caller caller;
    struct cached_credential cached;
    const char *scheme;
};

static int find_volume(struct broker *b, const char *name, struct api_volume **ret, struct err *err)
{
    auto_json j = NULL;
    int r = kube_call(
        b->kube,
        &(struct kube_request){.verb = KUBE_GET, .resource = &api_volumes, .name = str_of(name), .exempt = true}, &j,
        err);
    if (r == -ERR_NOT_FOUND)
        return err_fail(err, ERR_DENIED, CIS_BROKER_OTHER_VOLUME, "CisternVolume '%s': not found", name);
    return r < 0 ? r : api_volume_read(j, ret, err);
}

/* The next route is used only if the identity of the first was deleted, mostly with its namespace. An export must not
 * use another identity because a cloud was busy, or because the owner of the identity withdrew the permission. */
static int try_routes(struct broker *b, const struct route *routes, size_t count, struct progress *p, struct err *err)
{
    struct err first;
    int r = 0;
    for (size_t i = 0; i < count; i++) {
        r = credential_cache_get(b->cache, &routes[i], p->request.refused, &p->cached, err);
        p->scheme = routes[i].kind == ROUTE_ANONYMOUS ? "anonymous" : creds_kind_name(routes[i].creds);
        if (r == 0 || err_kind_of(err->id) != ERR_KIND_IDENTITY_GONE)
            return r;
        if (i == 0)
            first = *err;
    }
    *err = first;
    if (p->request.is_export)
        return err_advise(err, CIS_EXPORT_IDENTITY_GONE);
    return r;
}

/* The guard with the present addresses of the nodes. */
static int write_guard(const struct broker *b, struct sbuf *ret, struct err *err)
{
    sbuf_init(ret, GUARD_TEXT_MAX);
    if (b->options.guard_lines && !b->options.guard_lines(b->options.ctx, ret))
        return err_set(err, ERR_AGAIN, "the addresses of the nodes and of the API server are not known yet");
    return ret->overflow ? err_set(err, ERR_NO_SPACE, "the nodes have too many addresses") : 0;
}

static int make_guard(const struct broker *b, struct guard **ret, struct err *err)
{
    auto_sbuf text;
    int r = write_guard(b, &text, err);
    return r < 0 ? r : guard_parse(sbuf_str(&text), ret, err);
}

static struct route_rules rules_of(const struct broker *b, const struct guard *g)
{
    return (struct route_rules){.own_ns = b->ns,
                                .allow_driver = b->options.allow_driver_identity,
                                .bindings = b->options.bindings,
                                .binding_count = b->options.binding_count,
                                .guard = g};
}

static int serve_volume(struct broker *b, struct progress *p, struct err *err)
{
    auto_api_volume v = NULL;
    auto_spec spec = NULL;
    auto_json pod = NULL;
    struct route routes[ROUTES_MAX];
    size_t count;
    auto_guard guard = NULL;
    int r = make_guard(b, &guard, err);
    const struct route_rules rules = rules_of(b, guard);
    if (r == 0)
        r = find_volume(b, p->request.volume, &v, err);
    if (r == 0 && p->caller.kind == CALLER_JOB)
        r = callers_pod(b->callers, &p->caller, &pod, err);
    if (r == 0)
        r = caller_may(&p->caller, v, p->request.is_export, pod, err);
    if (r == 0)
        r = api_volume_spec(v, &spec, err);
    if (r < 0)
        return r;
    r = route_find(v, spec, p->request.is_export, p->request.creds, &rules, routes, &count, err);
    if (r < 0)
        return err_wrap(err, "volume '%s'", v->meta.name);
    return try_routes(b, routes, count, p, err);
}

static int handle(struct broker *b, const struct post_request *r, struct progress *p, unsigned *retry_after,
                  struct err *err)
{
    struct str token;
    uint64_t now = clock_now_ns();
    int code = bearer_token_of(r->authorization, &token, err);
    if (code < 0)
        token = STR("none"); /* callers without a token share one limit */
    *retry_after = refusal_limit_wait(&b->refusals, r->peer, token, now);
    if (*retry_after) {
        err_set(err, ERR_AGAIN, "too many rejected requests with this token or from this address");
        return err_advise(err, CIS_BROKER_THROTTLED, *retry_after);
    }
    if (code == 0)
        code = credential_request_parse(r->body, &p->request, err);
    if (code == 0)
        code = callers_find(b->callers, token, &p->caller, err);
    if (code == 0)
        code = serve_volume(b, p, err);
    enum err_kind kind = code == -ERR_DENIED ? err_kind_of(err->id) : ERR_KIND_OTHER;
    if (kind == ERR_KIND_CALLER_UNKNOWN || kind == ERR_KIND_CALLER_DENIED)
        refusal_limit_add(&b->refusals, r->peer, token, now);
    return code;
}

static void report(const struct broker *b, const struct progress *p, const struct err *err)
{
    const struct broker_event e = {.caller = str_of(p->caller.user),
                                   .pod = str_of(p->caller.pod),
                                   .volume = str_of(p->request.volume),
                                   .purpose = str_of(p->request.is_export ? "export" : "hydrate"),
                                   .method = str_of(p->cached.method),
                                   .principal = str_of(p->cached.principal),
                                   .err = err};
    if (b->options.on_call)
        b->options.on_call(b->options.ctx, &e);
}

static unsigned on_call(void *ctx, const struct post_request *r, struct sbuf *answer, unsigned *retry_after)
{
    struct broker *b = ctx;
    struct progress p = {0};
    struct err err;
    int code = handle(b, r, &p, retry_after, &err);
    if (code == 0) {
        const struct credential_reply words = {.scheme = p.scheme,
                                               .identity = p.cached.identity,
                                               .method = p.cached.method,
                                               .principal = p.cached.principal};
        code = reply_with_credential(&words, answer, &err);
        creds_identity_unref(p.cached.identity);
    }
    report(b, &p, code < 0 ? &err : NULL);
    if (code == 0)
        return 200;
    if (answer->len)
        explicit_bzero(answer->ptr, answer->len);
    sbuf_clear(answer);
    return reply_with_error(&err, answer);
}

/* ---- the certificate --------------------------------------------------------------------------------------------- */

static int check_certificate(struct broker *b, struct err *err)
{
    auto_sbuf guard;
    int r = write_guard(b, &guard, err);
    if (r < 0)
        return r;
    const struct publisher p = {
        .kube = b->kube, .ns = b->ns, .lease = b->options.lease, .times = b->options.times, .guard = sbuf_str(&guard)};
    struct cert_set s = {0};
    r = publish_step(&p, &s, err);
    if (r < 0)
        return r;
    if (s.server.certificate && s.server.key && (!b->served || strcmp(b->served, s.server.certificate) != 0)) {
        r = post_server_set_certificate(b->calls, s.server.certificate, s.server.key, err);
        if (r == 0) {
            free(b->served);
            b->served = take(&s.server.certificate);
        }
    }
    cert_set_done(&s);
    return r;
}

static uint64_t tick(void *ctx)
{
    struct broker *b = ctx;
    struct err err;
    int r = check_certificate(b, &err);
    /* Another replica wrote at the same time, or is the leader now: the next check reads its result. */
    bool is_race = r == -ERR_AGAIN || r == -ERR_EXISTS || r == -ERR_CHANGED || r == -ERR_CANCELLED;
    if (r < 0 && !is_race && b->options.on_error)
        b->options.on_error(b->options.ctx, "the certificate of the broker could not be checked", &err);
    return r < 0 || !b->served ? CHECK_SOON_NS : b->options.check_ns;
}

/* ---- start and stop ---------------------------------------------------------------------------------------------- */

/* The issuer of a GKE cluster is also its identity provider, and names its project. */
static void find_gke_cluster(struct broker *b, struct str issuer)
{
    struct str start = STR("https://container.googleapis.com/v1/projects/");
    struct str rest = str_starts(issuer, start) ? str_from(issuer, start.len) : STR_NULL, project;
    if (!str_split(&rest, '/', &project) || project.len == 0 || !str_starts(rest, STR("locations/")))
        return;
    b->project = b->project ? b->project : str_dup(project);
    b->provider = b->provider ? b->provider : str_dup(issuer);
}

static struct broker *prepared(struct loop *loop, struct kube *kube, const struct broker_options *o)
{
    struct broker *b = xcalloc(1, sizeof *b);
    refusal_limit_init(&b->refusals);
    b->options = *o;
    b->options.listen = NULL;
    b->options.check_ns = o->check_ns ? o->check_ns : CHECK_NS;
    b->kube = kube;
    b->worker.loop = loop;
    b->ns = str_dup(o->ns);
    b->node_account = str_dup(o->node_account);
    b->job_account = str_dup(o->job_account);
    b->project = text_copy(str_of(o->gke_project));
    b->provider = text_copy(str_of(o->gke_provider));
    find_gke_cluster(b, str_of(o->issuer));
    b->fetcher = (struct fetcher){.kube = kube,
                                  .worker = &b->worker,
                                  .own_ns = b->ns,
                                  .require_opt_in = o->require_opt_in,
                                  .gke_project = b->project,
                                  .gke_provider = b->provider,
                                  .audiences = b->options.audiences,
                                  .audience_count = o->audience_count};
    b->callers =
        callers_new(kube, &(struct caller_rules){str_of(b->ns), str_of(b->node_account), str_of(b->job_account)});
    b->cache = credential_cache_new(&b->fetcher);
    return b;
}

int broker_new(struct loop *loop, struct kube *kube, const struct broker_options *o, struct broker **ret,
               struct err *err)
{
    struct broker *b = prepared(loop, kube, o);
    const struct post_server_options calls = {
        .listen = o->listen, .path = "/v1/credentials", .ctx = b, .call = on_call};
    int r = web_new(loop, &(struct web_options){0}, &b->worker.web, err);
    if (r == 0)
        r = post_server_open(&calls, &b->calls, err);
    if (r == 0)
        r = ticker_start("broker", tick, b, &b->ticker, err);
    if (r < 0) {
        broker_free(b);
        return r;
    }
    *ret = b;
    return 0;
}

void broker_stop(struct broker *b)
{
    ticker_stop(take(&b->ticker));
    post_server_free(take(&b->calls));
}

void broker_free(struct broker *b)
{
    if (!b)
        return;
    if (b->ticker || b->calls)
        broker_stop(b);
    credential_cache_free(b->cache);
    callers_free(b->callers);
    web_free(b->worker.web);
    free(b->served);
    free(b->ns);
    free(b->node_account);
    free(b->job_account);
    free(b->project);
    free(b->provider);
    free(b);
}

int broker_probe(struct broker *b, const struct api_source *s, struct api_probe *ret, struct err *err)
{
    auto_guard guard = NULL;
    int r = make_guard(b, &guard, err);
    const struct route_rules rules = rules_of(b, guard);
    return r < 0 ? r : probe_source(b->cache, &rules, s, ret, err);
}

uint16_t broker_port(const struct broker *b)
{
    return post_server_port(b->calls);
}
