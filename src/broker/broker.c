/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/broker.h"
#include "ask.h"
#include "caller.h"
#include "http/calls.h"
#include "io/ticker.h"
#include "keep.h"
#include "probe.h"
#include "publish.h"
#include "refusals.h"
#include "util/clock.h"
#include <stdio.h>

#define LOOK_NS (60 * NS_PER_SECOND)
#define LOOK_SOON_NS (2 * NS_PER_SECOND) /* while nothing is served, or the last look failed */

struct broker {
    struct broker_options options;                              /* frozen; its texts are those below */
    char *ns, *node_account, *job_account, *project, *provider; /* owned */
    struct kube *kube;                                          /* borrowed */
    struct worker worker;                                       /* loop: borrowed; web: owned. Nothing else is used */
    struct fetcher fetcher;
    struct callers *callers;
    struct keep *keep;
    struct calls *calls;
    struct refusals refusals;
    struct ticker *ticker; /* owned; "broker": looks after the certificate */
    char *served;          /* owned; the ticker's: the certificate that is served, NULL: none */
};

/* ---- a call ------------------------------------------------------------------------------------------------------ */

/* What is known of a call, as far as it came: for the log and for the answer. */
struct progress {
    struct ask ask;
    struct caller caller;
    struct kept kept;
    const char *scheme;
};

static int find_volume(struct broker *b, const char *name, struct api_volume **ret, struct err *err)
{
    auto_json j = NULL;
    int r = kube_call(
        b->kube,
        &(struct kube_request){.verb = KUBE_GET, .resource = &api_volumes, .name = str_of(name), .exempt = true}, &j,
        err);
    if (r == -ERR_NOT_FOUND) {
        err_set(err, ERR_DENIED, "there is no volume '%s'", name);
        return err_advise(err, 1903, "credentials are given for a CisternVolume that exists");
    }
    return r < 0 ? r : api_volume_read(j, ret, err);
}

/* The service account or the Secret is not there any more; mostly the namespace is not, and with it the RoleBinding. */
static bool is_gone(const struct err *err)
{
    return err->id == 1905 || err->id == 1906;
}

/* The next way is for what is gone, and for nothing else: an export must not end up under another identity because a
 * cloud was busy, or because somebody took his consent back. */
static int go(struct broker *b, const struct route *routes, size_t count, struct progress *p, struct err *err)
{
    struct err first;
    int r = 0;
    for (size_t i = 0; i < count; i++) {
        r = keep_get(b->keep, &routes[i], p->ask.refused, &p->kept, err);
        p->scheme = routes[i].kind == ROUTE_ANONYMOUS ? "anonymous" : routes[i].scheme;
        if (r == 0 || !is_gone(err))
            return r;
        if (i == 0)
            first = *err;
    }
    *err = first;
    if (p->ask.is_export)
        return err_advise(err, 1911, "the volume is held; make it again, or set exportSecret in the StorageClass");
    return r;
}

/* The guard of this moment: nodes come and go. */
static int write_guard(const struct broker *b, struct sbuf *ret, struct err *err)
{
    sbuf_init(ret, GUARD_TEXT_MAX);
    if (b->options.guard_lines && !b->options.guard_lines(b->options.ctx, ret))
        return err_set(err, ERR_AGAIN, "the nodes are not known yet");
    return ret->overflow ? err_set(err, ERR_NO_SPACE, "the addresses of the nodes are too many") : 0;
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
        r = find_volume(b, p->ask.volume, &v, err);
    if (r == 0 && p->caller.kind == CALLER_JOB)
        r = callers_pod(b->callers, &p->caller, &pod, err);
    if (r == 0)
        r = caller_may(&p->caller, v, p->ask.is_export, pod, err);
    if (r == 0)
        r = api_volume_spec(v, &spec, err);
    if (r == 0)
        r = route_find(v, spec, p->ask.is_export, p->ask.scheme, &rules, routes, &count, err);
    return r < 0 ? r : go(b, routes, count, p, err);
}

static int handle(struct broker *b, const struct calls_request *r, struct progress *p, unsigned *retry_after,
                  struct err *err)
{
    struct str token;
    uint64_t now = clock_now_ns();
    int code = ask_token(r->authorization, &token, err);
    if (code < 0)
        token = STR("none"); /* all who bring none are one */
    *retry_after = refusals_wait(&b->refusals, r->peer, token, now);
    if (*retry_after) {
        err_set(err, ERR_AGAIN, "too many calls with this token, or of this address, were refused");
        return err_advise(err, 1910, "ask again in %u s, with a token of a running pod", *retry_after);
    }
    if (code == 0)
        code = ask_parse(r->body, &p->ask, err);
    if (code == 0)
        code = callers_find(b->callers, token, &p->caller, err);
    if (code == 0)
        code = serve_volume(b, p, err);
    if (code == -ERR_DENIED && (err->id == 1902 || err->id == 1903))
        refusals_add(&b->refusals, r->peer, token, now);
    return code;
}

static void tell(const struct broker *b, const struct progress *p, const struct err *err)
{
    const struct broker_event e = {.caller = str_of(p->caller.user),
                                   .pod = str_of(p->caller.pod),
                                   .volume = str_of(p->ask.volume),
                                   .purpose = str_of(p->ask.is_export ? "export" : "hydrate"),
                                   .method = str_of(p->kept.method),
                                   .principal = str_of(p->kept.principal),
                                   .err = err};
    if (b->options.on_call)
        b->options.on_call(b->options.ctx, &e);
}

static unsigned on_call(void *ctx, const struct calls_request *r, struct sbuf *answer, unsigned *retry_after)
{
    struct broker *b = ctx;
    struct progress p = {0};
    struct err err;
    int code = handle(b, r, &p, retry_after, &err);
    if (code == 0) {
        const struct grant_words words = {
            .scheme = p.scheme, .identity = p.kept.identity, .method = p.kept.method, .principal = p.kept.principal};
        code = answer_credential(&words, answer, &err);
        identity_unref(p.kept.identity);
    }
    tell(b, &p, code < 0 ? &err : NULL);
    if (code == 0)
        return 200;
    if (answer->len)
        explicit_bzero(answer->ptr, answer->len);
    sbuf_clear(answer);
    return answer_error(&err, answer);
}

/* ---- the certificate --------------------------------------------------------------------------------------------- */

static int look(struct broker *b, struct err *err)
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
        r = calls_set_certificate(b->calls, s.server.certificate, s.server.key, err);
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
    int r = look(b, &err);
    /* Somebody else wrote in between, or leads no longer: the next look sees it. */
    bool is_race = r == -ERR_AGAIN || r == -ERR_EXISTS || r == -ERR_CHANGED || r == -ERR_CANCELLED;
    if (r < 0 && !is_race && b->options.on_trouble)
        b->options.on_trouble(b->options.ctx, "the broker's certificate cannot be looked after", &err);
    return r < 0 || !b->served ? LOOK_SOON_NS : b->options.look_ns;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static char *or_null(const char *text)
{
    return text && text[0] ? str_dup(str_of(text)) : NULL;
}

static struct broker *prepared(struct loop *loop, struct kube *kube, const struct broker_options *o)
{
    struct broker *b = xcalloc(1, sizeof *b);
    refusals_init(&b->refusals);
    b->options = *o;
    b->options.listen = NULL;
    b->options.look_ns = o->look_ns ? o->look_ns : LOOK_NS;
    b->kube = kube;
    b->worker.loop = loop;
    b->ns = str_dup(o->ns);
    b->node_account = str_dup(o->node_account);
    b->job_account = str_dup(o->job_account);
    b->project = or_null(o->gke_project);
    b->provider = or_null(o->gke_provider);
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
    b->keep = keep_new(&b->fetcher);
    return b;
}

int broker_new(struct loop *loop, struct kube *kube, const struct broker_options *o, struct broker **ret,
               struct err *err)
{
    struct broker *b = prepared(loop, kube, o);
    const struct calls_options calls = {.listen = o->listen, .path = "/v1/credentials", .ctx = b, .call = on_call};
    int r = web_new(loop, &(struct web_options){0}, &b->worker.web, err);
    if (r == 0)
        r = calls_open(&calls, &b->calls, err);
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
    calls_free(take(&b->calls));
}

void broker_free(struct broker *b)
{
    if (!b)
        return;
    if (b->ticker || b->calls)
        broker_stop(b);
    keep_free(b->keep);
    callers_free(b->callers);
    web_free(b->worker.web);
    refusals_done(&b->refusals);
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
    return r < 0 ? r : probe_source(b->keep, &rules, s, ret, err);
}

uint16_t broker_port(const struct broker *b)
{
    return calls_port(b->calls);
}
