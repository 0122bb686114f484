/* SPDX-License-Identifier: Apache-2.0 */
#include "route.h"
#include "creds/trust.h"
#include "kind.h"
#include "store/store.h"
#include "util/uri.h"
#include <stdio.h>

struct route_request {
    const struct api_volume *volume;
    const struct spec *spec;
    bool is_export;
    const struct route_rules *rules;
    enum creds_kind creds;
};

static int unsupported(const char *why, const char *advice, struct err *err)
{
    err_set(err, ERR_DENIED, "%s", why);
    return err_advise(err, CIS_IDENTITY_UNSUPPORTED, advice);
}

/* The requested kind must be one that the volume uses: a credential for another store is useless. */
static int find_kind(struct route_request *w, enum creds_kind asked, struct err *err)
{
    enum creds_kind first = CREDS_NONE;
    size_t count = w->is_export ? 1 : spec_source_count(w->spec);
    for (size_t i = 0; i < count; i++) {
        struct spec_uri uri = w->is_export ? w->spec->export.uri : spec_source_at(w->spec, i).uri;
        enum creds_kind one = store_creds_kind(uri.view.scheme); /* CREDS_NONE: a directory */
        if (!first || one == asked)
            first = one ? one : first;
    }
    if (!first || (asked && first != asked))
        return unsupported(w->is_export ? "the export has another scheme" : "the source has another scheme",
                           "use the scheme of the BucketSource", err);
    w->creds = first;
    return 0;
}

static bool needs_account(enum spec_identity method)
{
    unsigned methods = 0;
    for (enum creds_kind k = CREDS_NONE + 1; k < CREDS_KINDS; k++)
        methods |= broker_kinds[k]->methods;
    return methods & 1U << method;
}

static int check_method(const struct route_request *w, enum spec_identity method, struct err *err)
{
    char why[80];
    snprintf(why, sizeof why, "identity.method %s does not work for %s://", spec_identity_name(method),
             creds_kind_name(w->creds));
    if (needs_account(method) && !(broker_kinds[w->creds]->methods & 1U << method))
        return unsupported(why, broker_kinds[w->creds]->advice, err);
    if (method == IDENTITY_METADATA && !w->rules->allow_driver)
        return unsupported("identity.method metadata is not allowed",
                           "set serviceAccountName or secretRef, or identity.allowDriverIdentity in the chart", err);
    return 0;
}

static struct route to_secret(const struct route_request *w, const char *ns, const char *name)
{
    return (struct route){.kind = ROUTE_SECRET, .creds = w->creds, .ns = ns, .name = name};
}

static const char *namespace_of(const struct api_volume *v)
{
    return v->source_namespace ? v->source_namespace : v->claim_namespace;
}

static int to_account(const struct route_request *w, enum spec_identity method, const char *account, struct route *ret,
                      struct err *err)
{
    const struct spec_source *s = &w->spec->source;
    const char *region = w->is_export ? spec_export_server(w->spec).region : s->region;
    if (!namespace_of(w->volume))
        return unsupported("the volume has no namespace", "create it with a claim", err);
    *ret = (struct route){.kind = ROUTE_ACCOUNT,
                          .method = method,
                          .creds = w->creds,
                          .ns = namespace_of(w->volume),
                          .name = account,
                          .audience = s->identity_audience,
                          .provider = s->identity_provider,
                          .region = region};
    return 0;
}

static int find_first(const struct route_request *w, enum spec_identity method, const char *account, const char *secret,
                      struct route *ret, struct err *err)
{
    int r = check_method(w, method, err);
    if (r < 0)
        return r;
    if (method == IDENTITY_ANONYMOUS) {
        *ret = (struct route){.kind = ROUTE_ANONYMOUS, .creds = w->creds};
        return 0;
    }
    if (method == IDENTITY_SECRET || (method == IDENTITY_AUTO && secret)) {
        if (!secret || !namespace_of(w->volume))
            return unsupported("identity.method is secret, but secretRef is missing", "set secretRef.name", err);
        *ret = to_secret(w, namespace_of(w->volume), secret);
        return 0;
    }
    if (method == IDENTITY_METADATA || (method == IDENTITY_AUTO && !account && w->rules->allow_driver)) {
        *ret = (struct route){.kind = ROUTE_DRIVER, .creds = w->creds, .region = w->spec->source.region};
        return 0;
    }
    if (!account)
        return unsupported("the source has no identity",
                           "set serviceAccountName, secretRef or identity.method: anonymous in the BucketSource", err);
    return to_account(w, method, account, ret, err);
}

/* An export may name its own identity. The source's method applies to a service account only. */
static int find_export(const struct route_request *w, struct route *ret, struct err *err)
{
    const struct spec_source *s = &w->spec->source;
    const struct spec_export *e = &w->spec->export;
    enum spec_identity method = (enum spec_identity)s->identity;
    if (e->secret_name)
        return find_first(w, IDENTITY_SECRET, NULL, e->secret_name, ret, err);
    if (e->service_account)
        return find_first(w, needs_account(method) ? method : IDENTITY_AUTO, e->service_account, NULL, ret, err);
    /* An export cannot be anonymous: a public source with an export needs another identity. */
    if (method == IDENTITY_ANONYMOUS)
        method = IDENTITY_AUTO;
    return find_first(w, method, s->service_account, s->secret_name, ret, err);
}

/* ---- endpoint ---------------------------------------------------------------------------------------------------- */

static struct str endpoint_of(const struct route_request *w)
{
    return str_of(w->is_export ? spec_export_server(w->spec).endpoint : w->spec->source.endpoint);
}

/* Users choose the CA, too: a server with their certificate could pass for the provider's, and get the token. A user
 * may risk a token of their own, but not the driver's, or that of an exportSecret. */
static bool is_token_under_users_ca(const struct route_request *w)
{
    const char *ca = w->is_export ? spec_export_server(w->spec).ca_bundle : w->spec->source.ca_bundle;
    return !broker_kinds[w->creds]->is_signed && ca;
}

/* Users choose the endpoint. Requests that are signed with the user's own keys may go anywhere. Bearer tokens and
 * identities of accounts go only to the provider, and to endpoints that the administrator trusts. */
static int check_destination(const struct route_request *w, const struct route *r, struct err *err)
{
    enum trust trust = trust_of(w->creds, endpoint_of(w), w->rules->guard);
    if (r->kind == ROUTE_DRIVER && is_token_under_users_ca(w))
        return err_fail(err, ERR_DENIED, CIS_CREDENTIAL_NOT_FOR_ENDPOINT,
                        "the driver's own identity is not used with a caBundle");
    if (r->kind == ROUTE_ANONYMOUS || trust == TRUST_PROVIDER ||
        (r->kind == ROUTE_SECRET && broker_kinds[w->creds]->is_signed))
        return 0;
    if (r->kind != ROUTE_DRIVER && trust == TRUST_LISTED)
        return 0;
    return err_fail(err, ERR_DENIED, CIS_CREDENTIAL_NOT_FOR_ENDPOINT, "the endpoint is not trusted for %s",
                    r->kind == ROUTE_DRIVER    ? "the driver's own identity"
                    : r->kind == ROUTE_ACCOUNT ? "a service account"
                                               : "a bearer token");
}

/* ---- exportSecret ------------------------------------------------------------------------------------------------ */

int broker_binding_parse(struct str text, struct broker_binding *ret, struct err *err)
{
    struct broker_binding b;
    struct str rest = text;
    bool ok = str_split(&rest, '=', &b.secret) && b.secret.len > 0;
    b.endpoint = STR_NULL;
    if (ok && str_starts(rest, STR("http")))
        ok = str_split(&rest, '=', &b.endpoint);
    b.prefix = rest;
    if (!ok || uri_split(rest).bucket.len == 0)
        return err_set(err, ERR_INVALID, "'%.*s' is not NAME=[ENDPOINT=]PREFIX", STR_FMT(str_sub(text, 0, 200)));
    *ret = b;
    return 0;
}

static struct str without_slash(struct str s)
{
    while (str_ends(s, STR("/")))
        s.len--;
    return s;
}

/* Some servers resolve "..", and leave the prefix. */
static bool has_dot_segment(struct str uri)
{
    struct str rest = uri, segment;
    while (str_split(&rest, '/', &segment))
        if (str_eq(segment, STR(".")) || str_eq(segment, STR("..")))
            return true;
    return false;
}

/* "s3://results/team/run-7/" is below "s3://results/team", "s3://results/team-2/" is not. */
static bool is_below(struct str uri, struct str prefix)
{
    struct str p = without_slash(prefix);
    return str_starts(uri, p) && uri.len > p.len && uri.ptr[p.len] == '/' && !has_dot_segment(str_from(uri, p.len));
}

static bool is_bound(const struct route_request *w, const char *secret)
{
    struct str endpoint = without_slash(endpoint_of(w));
    for (size_t i = 0; i < w->rules->binding_count; i++) {
        const struct broker_binding *b = &w->rules->bindings[i];
        bool there = b->endpoint.len ? str_eq(endpoint, without_slash(b->endpoint))
                                     : trust_of(w->creds, endpoint, NULL) == TRUST_PROVIDER;
        if (there && str_eq(b->secret, str_of(secret)) && is_below(str_of(w->spec->export.uri.text), b->prefix))
            return true;
    }
    return false;
}

/* Without these checks, naming an account that does not exist would give access to the administrator's key. */
static bool may_fall_back(const struct route_request *w)
{
    const char *secret = w->spec->params.export_secret;
    return w->is_export && secret && w->volume->has_exported && is_bound(w, secret) && !is_token_under_users_ca(w);
}

int route_find(const struct api_volume *v, const struct spec *s, bool is_export, enum creds_kind asked,
               const struct route_rules *rules, struct route ret[ROUTES_MAX], size_t *ret_count, struct err *err)
{
    struct route_request w = {.volume = v, .spec = s, .is_export = is_export, .rules = rules};
    const struct spec_source *from = &s->source;
    size_t n = 1;
    int r = find_kind(&w, asked, err);
    if (r < 0)
        return r;
    r = is_export ? find_export(&w, &ret[0], err)
                  : find_first(&w, (enum spec_identity)from->identity, from->service_account, from->secret_name,
                               &ret[0], err);
    if (r == 0)
        r = check_destination(&w, &ret[0], err);
    if (r < 0)
        return r;
    if (may_fall_back(&w))
        ret[n++] = to_secret(&w, rules->own_ns, s->params.export_secret);
    *ret_count = n;
    return 0;
}

int route_key(const struct route *r, struct sbuf *ret, struct err *err)
{
    const char *const parts[] = {creds_kind_name(r->creds), r->ns, r->name, r->audience, r->provider, r->region};
    /* Namespace and name come first and contain no newline. So text that users choose can only be confused with
     * another route of the same account. */
    sbuf_addf(ret, "%d %d", (int)r->kind, (int)r->method);
    for (size_t i = 0; i < countof(parts); i++)
        sbuf_addf(ret, "\n%s", parts[i] ? parts[i] : "");
    return ret->overflow ? err_set(err, ERR_NO_SPACE, "the identity of the source is too long") : 0;
}
