/* SPDX-License-Identifier: Apache-2.0 */
#include "route.h"
#include "store/trust.h"

struct wish {
    const struct api_volume *volume;
    const struct spec *spec;
    bool is_export;
    const struct route_rules *rules;
    const char *scheme;
};

static int dead_end(const struct wish *w, const char *why, const char *advice, struct err *err)
{
    err_set(err, ERR_DENIED, "volume '%s': %s", w->volume->meta.name, why);
    return err_advise(err, 1908, "%s", advice);
}

/* NULL of what is no cloud's: a folder needs no credential. */
static const char *cloud_of(const char *uri)
{
    const char *scheme = spec_scheme(uri);
    return scheme && strcmp(scheme, "file") != 0 ? scheme : NULL;
}

/* What the caller speaks must be what its volume names: an S3 key is of no use at the other store, and no Job of ours
 * asks for it. */
static int find_scheme(struct wish *w, const char *asked, struct err *err)
{
    const char *first = NULL;
    size_t count = w->is_export ? 1 : spec_source_count(w->spec);
    for (size_t i = 0; i < count; i++) {
        const char *uri = w->is_export ? w->spec->export.uri : spec_source_at(w->spec, i).uri;
        const char *one = cloud_of(uri);
        first = first ? first : one;
        if (one && strcmp(one, asked) == 0)
            first = one;
    }
    if (!first || (asked[0] && strcmp(first, asked) != 0))
        return dead_end(w, w->is_export ? "it has no export to such a store" : "it has no source in such a store",
                        "credentials are for the stores that its BucketSource names", err);
    w->scheme = first;
    return 0;
}

static int check_method(const struct wish *w, enum spec_identity method, struct err *err)
{
    bool is_s3 = strcmp(w->scheme, "s3") == 0;
    if (method == IDENTITY_POD)
        return dead_end(w, "EKS Pod Identity gives credentials to a running pod alone",
                        "use identity.method irsa, or a Secret; see docs/identity.md", err);
    if (is_s3 && (method == IDENTITY_GKE || method == IDENTITY_WIF))
        return dead_end(w, "identity.method gke and wif are Google's, and its store is s3://", "use irsa, or a Secret",
                        err);
    if (!is_s3 && method == IDENTITY_IRSA)
        return dead_end(w, "identity.method irsa is AWS's, and its store is gs://", "use gke or wif, or a Secret", err);
    if (method == IDENTITY_METADATA && !w->rules->allow_driver)
        return dead_end(w, "identity.method metadata is the driver's own identity, which is not allowed here",
                        "name a serviceAccountName or a secretRef; or set identity.allowDriverIdentity", err);
    return 0;
}

static struct route to_driver(const struct wish *w)
{
    return (struct route){.kind = ROUTE_DRIVER, .scheme = w->scheme, .region = w->spec->source.region};
}

static struct route to_secret(const struct wish *w, const char *ns, const char *name)
{
    return (struct route){.kind = ROUTE_SECRET, .scheme = w->scheme, .ns = ns, .name = name};
}

static const char *namespace_of(const struct api_volume *v)
{
    return v->source_namespace ? v->source_namespace : v->claim_namespace;
}

static int to_account(const struct wish *w, enum spec_identity method, const char *account, struct route *ret,
                      struct err *err)
{
    const struct spec_source *s = &w->spec->source;
    const char *region = w->is_export && w->spec->export.region ? w->spec->export.region : s->region;
    if (!namespace_of(w->volume))
        return dead_end(w, "it belongs to no namespace", "only volumes of claims have a service account", err);
    *ret = (struct route){.kind = ROUTE_ACCOUNT,
                          .method = method,
                          .scheme = w->scheme,
                          .ns = namespace_of(w->volume),
                          .name = account,
                          .audience = s->identity_audience,
                          .provider = s->identity_provider,
                          .region = region};
    return 0;
}

static int find_first(const struct wish *w, enum spec_identity method, const char *account, const char *secret,
                      struct route *ret, struct err *err)
{
    int r = check_method(w, method, err);
    if (r < 0)
        return r;
    if (method == IDENTITY_ANONYMOUS) {
        *ret = (struct route){.kind = ROUTE_ANONYMOUS, .scheme = w->scheme};
        return 0;
    }
    if (method == IDENTITY_SECRET || (method == IDENTITY_AUTO && secret)) {
        if (!secret || !namespace_of(w->volume))
            return dead_end(w, "identity.method is secret, and no Secret is named", "set secretRef.name", err);
        *ret = to_secret(w, namespace_of(w->volume), secret);
        return 0;
    }
    if (method == IDENTITY_METADATA || (method == IDENTITY_AUTO && !account && w->rules->allow_driver)) {
        *ret = to_driver(w);
        return 0;
    }
    if (!account)
        return dead_end(w, "its source names neither a service account nor a Secret",
                        "set serviceAccountName or secretRef.name in the BucketSource, or identity.method: anonymous",
                        err);
    return to_account(w, method, account, ret, err);
}

/* An export has an identity of its own if it names one; the source's method goes with its account, not with another
 * kind of thing. */
static int find_export(const struct wish *w, struct route *ret, struct err *err)
{
    const struct spec_source *s = &w->spec->source;
    const struct spec_export *e = &w->spec->export;
    enum spec_identity method = (enum spec_identity)s->identity;
    if (e->secret_name)
        return find_first(w, IDENTITY_SECRET, NULL, e->secret_name, ret, err);
    if (e->service_account) {
        bool fits = method == IDENTITY_GKE || method == IDENTITY_WIF || method == IDENTITY_IRSA;
        return find_first(w, fits ? method : IDENTITY_AUTO, e->service_account, NULL, ret, err);
    }
    /* Nobody writes anonymously: a public source with an export needs somebody who may. */
    if (method == IDENTITY_ANONYMOUS)
        method = IDENTITY_AUTO;
    return find_first(w, method, s->service_account, s->secret_name, ret, err);
}

/* ---- where it may go --------------------------------------------------------------------------------------------- */

/* As the Job chooses it. */
static struct str endpoint_of(const struct wish *w)
{
    const char *own = w->is_export ? w->spec->export.endpoint : NULL;
    return str_of(own ? own : w->spec->source.endpoint);
}

/* A user writes the endpoint. Who signs with keys of the user's own gives nothing away that is not his; a bearer token,
 * and what somebody else's trust is worth, go to the provider, or where the administrator says. */
static int check_destination(const struct wish *w, const struct route *r, struct err *err)
{
    enum trust trust = trust_of(w->scheme, endpoint_of(w), w->rules->guard);
    bool is_signed = strcmp(w->scheme, "s3") == 0;
    if (r->kind == ROUTE_ANONYMOUS || trust == TRUST_PROVIDER || (r->kind == ROUTE_SECRET && is_signed))
        return 0;
    if (r->kind != ROUTE_DRIVER && trust == TRUST_LISTED)
        return 0;
    err_set(err, ERR_DENIED, "volume '%s': its endpoint is not one that %s may be used at", w->volume->meta.name,
            r->kind == ROUTE_DRIVER    ? "the driver's own identity"
            : r->kind == ROUTE_ACCOUNT ? "a service account"
                                       : "a bearer token");
    return err_advise(
        err, 1912,
        "leave the endpoint out, or use access keys in a Secret (s3://); or let an administrator add it to "
        "endpoints.trusted of the chart");
}

/* ---- the last resort --------------------------------------------------------------------------------------------- */

int broker_binding_parse(struct str text, struct broker_binding *ret, struct err *err)
{
    struct broker_binding b;
    struct str rest = text;
    bool ok = str_split(&rest, '=', &b.secret) && b.secret.len > 0;
    b.endpoint = STR_NULL;
    if (ok && str_starts(rest, STR("http")))
        ok = str_split(&rest, '=', &b.endpoint);
    b.prefix = rest;
    ok = ok && (str_starts(rest, STR("s3://")) || str_starts(rest, STR("gs://"))) && rest.len > sizeof "s3://";
    if (!ok)
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

/* "s3://results/team" has "s3://results/team/run-7/" below it, and not "s3://results/team-2/". */
static bool is_below(struct str uri, struct str prefix)
{
    struct str p = without_slash(prefix);
    return str_starts(uri, p) && uri.len > p.len && uri.ptr[p.len] == '/';
}

static bool is_bound(const struct wish *w, const char *secret)
{
    struct str endpoint = without_slash(endpoint_of(w));
    for (size_t i = 0; i < w->rules->binding_count; i++) {
        const struct broker_binding *b = &w->rules->bindings[i];
        bool there = b->endpoint.len ? str_eq(endpoint, without_slash(b->endpoint))
                                     : trust_of(w->scheme, endpoint, NULL) == TRUST_PROVIDER;
        if (there && str_eq(b->secret, str_of(secret)) && is_below(str_of(w->spec->export.uri), b->prefix))
            return true;
    }
    return false;
}

/* Else whoever names an account that does not exist would get the administrator's key. */
static bool may_fall_back(const struct wish *w)
{
    const char *secret = w->spec->params.export_secret;
    return w->is_export && secret && w->volume->has_exported && is_bound(w, secret);
}

int route_find(const struct api_volume *v, const struct spec *s, bool is_export, const char *scheme,
               const struct route_rules *rules, struct route ret[ROUTES_MAX], size_t *ret_count, struct err *err)
{
    struct wish w = {.volume = v, .spec = s, .is_export = is_export, .rules = rules};
    const struct spec_source *from = &s->source;
    size_t n = 1;
    int r = find_scheme(&w, scheme, err);
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
    const char *const parts[] = {r->scheme, r->ns, r->name, r->audience, r->provider, r->region};
    /* Whose it is comes first, in names that cannot hold a line break: what a user may write freely behind it can only
     * be mistaken for something else of the same account. */
    sbuf_addf(ret, "%d %d", (int)r->kind, (int)r->method);
    for (size_t i = 0; i < countof(parts); i++)
        sbuf_addf(ret, "\n%s", parts[i] ? parts[i] : "");
    return ret->overflow ? err_set(err, ERR_NO_SPACE, "the source's identity is too long") : 0;
}
