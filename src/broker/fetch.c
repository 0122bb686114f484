/* SPDX-License-Identifier: Apache-2.0 */
#include "kind.h"
#include "util/clock.h"
#include "util/encode.h"
#include "util/metric.h"
#include "util/names.h"
#include <ctype.h>
#include <stdio.h>

enum { TOKEN_SECONDS = 3600, SECRET_MAX = 64 << 10 };

#define LIFE_MAX_NS (3600 * (int64_t)NS_PER_SECOND)
/* For keys that do not expire: a changed Secret is read after this time. */
#define SECRET_LIFE_NS (900 * (int64_t)NS_PER_SECOND)

const struct broker_kind *const broker_kinds[CREDS_KINDS] = {[CREDS_AWS] = &broker_aws, [CREDS_GOOGLE] = &broker_gcp};

/* Wipes a secret within the JSON tree of a reply, which is not read again. */
static void wipe(struct str secret)
{
    if (secret.len)
        explicit_bzero((char *)(uintptr_t)secret.ptr, secret.len);
}

/* Replaces the message of the API server, which is long and gives no advice. */
static int denied(const struct fetcher *f, const char *kind, const struct route *r, struct err *err)
{
    err_set(err, ERR_DENIED, "%s '%s/%s': access is forbidden", kind, r->ns, r->name);
    return err_advise(err, CIS_BROKER_NAMESPACE_DENIED, r->ns, f->own_ns);
}

static int read_object(const struct fetcher *f, const struct kube_resource *kind, const struct route *r, json **ret,
                       struct err *err)
{
    const struct kube_request get = {
        .verb = KUBE_GET, .resource = kind, .ns = str_of(r->ns), .name = str_of(r->name), .exempt = true};
    int code = kube_call(f->kube, &get, ret, err);
    if (code == -ERR_NOT_FOUND)
        return err_fail(err, ERR_NOT_FOUND, CIS_IDENTITY_NOT_FOUND, "%s '%s/%s': not found", kind->kind, r->ns,
                        r->name);
    return code == -ERR_DENIED ? denied(f, kind->kind, r, err) : code;
}

/* ---- Secret ------------------------------------------------------------------------------------------------------ */

char *fetch_secret_value(const json *secret, const char *key)
{
    struct str encoded = json_member_str(json_at(secret, "data"), key);
    struct sbuf b;
    char *text = NULL;
    if (encoded.len == 0 || encoded.len > SECRET_MAX)
        return NULL;
    sbuf_init(&b, SECRET_MAX);
    if (!base64_parse(encoded, &b) || sbuf_take(&b, &text, ERR_IGNORED) < 0)
        text = NULL;
    sbuf_done(&b);
    wipe(encoded);
    for (size_t len = text ? strlen(text) : 0; len > 0 && isspace((unsigned char)text[len - 1]); len--)
        text[len - 1] = '\0';
    return text;
}

static int fetch_secret(const struct fetcher *f, const struct route *r, struct fetched *ret, struct err *err)
{
    auto_json secret = NULL;
    int code = read_object(f, &kube_secrets, r, &secret, err);
    if (code < 0)
        return code;
    snprintf(ret->method, sizeof ret->method, "secret");
    snprintf(ret->principal, sizeof ret->principal, "secret %s/%s", r->ns, r->name);
    return broker_kinds[r->creds]->read_secret(f, r, secret, ret, err);
}

/* ---- service account --------------------------------------------------------------------------------------------- */

/* May a token be created for this audience? Only for those of the clouds and of the administrator, never for the API
 * server's. */
static bool may_ask_for(const struct fetcher *f, struct str audience)
{
    for (enum creds_kind k = CREDS_NONE + 1; k < CREDS_KINDS; k++)
        if (broker_kinds[k]->is_audience(audience))
            return true;
    for (size_t i = 0; i < f->audience_count; i++)
        if (str_eq(audience, str_of(f->audiences[i])))
            return true;
    return false;
}

static int check_opt_in(const struct fetcher *f, const struct route *r, const json *annotations, struct err *err)
{
    if (!f->require_opt_in || str_eq(json_member_str(annotations, NAME_ANNOTATION_ALLOW_BUCKET_ACCESS), STR("true")))
        return 0;
    err_set(err, ERR_DENIED, "service account '%s/%s': annotation " NAME_ANNOTATION_ALLOW_BUCKET_ACCESS " is missing",
            r->ns, r->name);
    return err_advise(err, CIS_SERVICE_ACCOUNT_NOT_ANNOTATED, r->ns, r->name);
}

/* *ret is the caller's, who wipes it. */
static int mint(const struct fetcher *f, const struct route *r, struct str audience, char **ret, struct err *err)
{
    auto_json asked = json_new_object();
    auto_json answer = NULL;
    struct str token;
    if (!may_ask_for(f, audience)) {
        err_set(err, ERR_DENIED, "service account '%s/%s': audience '%.*s' is not allowed", r->ns, r->name,
                STR_FMT(str_sub(audience, 0, 160)));
        return err_advise(err, CIS_IDENTITY_UNSUPPORTED,
                          "correct identity.audience, or add it to identity.audiences of the chart");
    }
    json *audiences = json_new_array();
    json_append_str(audiences, audience);
    json_set_str(asked, "apiVersion", STR("authentication.k8s.io/v1"));
    json_set_str(asked, "kind", STR("TokenRequest"));
    json_set(asked, "spec.audiences", audiences);
    json_set_u64(asked, "spec.expirationSeconds", TOKEN_SECONDS);
    int code = kube_call(f->kube,
                         &(struct kube_request){.verb = KUBE_CREATE,
                                                .resource = &kube_service_accounts,
                                                .ns = str_of(r->ns),
                                                .name = str_of(r->name),
                                                .subresource = "token",
                                                .body = asked,
                                                .exempt = true},
                         &answer, err);
    if (code == -ERR_DENIED)
        return denied(f, "ServiceAccount", r, err);
    if (code == 0)
        code = json_get_str(answer, "status.token", &token, err);
    if (code < 0)
        return code;
    *ret = str_dup(token);
    wipe(token);
    return 0;
}

int fetch_exchange_minted(const struct fetcher *f, const struct route *r, struct str audience, struct grant *g,
                          struct fetched *ret, struct err *err)
{
    auto_secret token = NULL;
    int code = mint(f, r, audience, &token, err);
    if (code < 0)
        return code;
    g->token = str_of(token);
    code = grant_exchange(g, f->worker, &ret->identity, &ret->retry_after_ns, err);
    return code < 0 ? err_wrap(err, "service account '%s/%s'", r->ns, r->name) : 0;
}

int fetch_cannot(const struct route *r, const char *why, const char *advice, struct err *err)
{
    err_set(err, ERR_DENIED, "service account '%s/%s': %s", r->ns, r->name, why);
    return err_advise(err, CIS_IDENTITY_UNSUPPORTED, advice);
}

int fetch_read_annotation(const struct route *r, const json *annotations, const char *name, struct str *ret,
                          struct err *err)
{
    struct str value = json_member_str(annotations, name);
    char why[128];
    if (!str_is_visible(value, "\"\\")) {
        snprintf(why, sizeof why, "annotation %s has a character that no name of a cloud has", name);
        return fetch_cannot(r, why, "correct the annotation of the service account", err);
    }
    *ret = value;
    return 0;
}

static int fetch_account(const struct fetcher *f, const struct route *r, struct fetched *ret, struct err *err)
{
    auto_json account = NULL;
    int code = read_object(f, &kube_service_accounts, r, &account, err);
    if (code < 0)
        return code;
    const json *annotations = json_at(account, "metadata.annotations");
    code = check_opt_in(f, r, annotations, err);
    if (code < 0)
        return code;
    return broker_kinds[r->creds]->exchange(f, r, annotations, ret, err);
}

/* ---- all routes -------------------------------------------------------------------------------------------------- */

static int fetch_driver(const struct fetcher *f, const struct route *r, struct fetched *ret, struct err *err)
{
    struct grant g = {.kind = GRANT_OWN, .own = r->creds, .region = str_of(r->region)};
    snprintf(ret->method, sizeof ret->method, "metadata");
    snprintf(ret->principal, sizeof ret->principal, "the driver itself");
    return grant_exchange(&g, f->worker, &ret->identity, &ret->retry_after_ns, err);
}

static void fetch_anonymous(struct fetched *ret)
{
    ret->identity = creds_identity_new();
    ret->identity->anonymous = true;
    snprintf(ret->method, sizeof ret->method, "anonymous");
    snprintf(ret->principal, sizeof ret->principal, "anonymous");
}

/* No identity is used for longer than an hour, so that changes are seen. */
static void bound_life(const struct route *r, struct creds_identity *i)
{
    int64_t now = clock_wall_ns(), most = now + (r->kind == ROUTE_SECRET ? SECRET_LIFE_NS : LIFE_MAX_NS);
    if (r->kind == ROUTE_SECRET && i->expires_ns)
        most = now + LIFE_MAX_NS;
    if (i->expires_ns == 0 || i->expires_ns > most)
        i->expires_ns = most;
}

static void count(const struct fetched *f, bool done)
{
    struct metric *exchanges =
        metric_new(METRIC_COUNTER, "cistern_token_exchanges_total",
                   "Credentials that were requested from a token service.", "method,result", NULL);
    metric_add(metric_series(exchanges, f->method[0] ? f->method : "none", done ? "ok" : "error"), 1);
}

int fetch_route(const struct fetcher *f, const struct route *r, struct fetched *ret, struct err *err)
{
    struct fetched got = {0};
    int code = 0;
    switch (r->kind) {
    case ROUTE_ANONYMOUS:
        fetch_anonymous(&got);
        break;
    case ROUTE_SECRET:
        code = fetch_secret(f, r, &got, err);
        break;
    case ROUTE_ACCOUNT:
        code = fetch_account(f, r, &got, err);
        break;
    case ROUTE_DRIVER:
        code = fetch_driver(f, r, &got, err);
        break;
    }
    count(&got, code == 0);
    if (code == 0)
        bound_life(r, got.identity);
    *ret = got;
    return code;
}
