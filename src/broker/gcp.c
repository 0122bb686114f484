/* SPDX-License-Identifier: Apache-2.0 */
/* Google: a service account's key in a Secret; workload identity of GKE, or federation of another cluster. */
#include "kind.h"
#include <stdio.h>

#define EMAIL_ANNOTATION "iam.gke.io/gcp-service-account"

static int read_secret(const struct fetcher *f, const struct route *r, const json *secret, struct fetched *ret,
                       struct err *err)
{
    auto_secret key = fetch_secret_value(secret, "service_account.json");
    if (!key)
        return err_fail(err, ERR_DENIED, CIS_SECRET_INVALID, "Secret '%s/%s': no service_account.json", r->ns, r->name);
    const struct grant g = {.kind = GRANT_GCP_KEY, .key = str_of(key)};
    int code = grant_exchange(&g, f->worker, &ret->identity, &ret->retry_after_ns, err);
    if (code < 0 && err->code == ERR_INVALID) {
        err_wrap(err, "Secret '%s/%s'", r->ns, r->name);
        return err_advise(err, CIS_SECRET_INVALID);
    }
    return code;
}

/* Google accepts tokens of the GKE cluster, and of any issuer that a workload identity provider trusts. */
static int exchange(const struct fetcher *f, const struct route *r, const json *annotations, struct fetched *ret,
                    struct err *err)
{
    char pool[256], sts_audience[1024];
    struct str email = STR_NULL, asked;
    bool is_wif = r->method == IDENTITY_WIF || (r->method == IDENTITY_AUTO && r->provider);
    int code = fetch_read_annotation(r, annotations, EMAIL_ANNOTATION, &email, err);
    if (code < 0)
        return code;
    if (is_wif && !r->provider)
        return fetch_cannot(r, "identity.provider is missing",
                            "set identity.provider: //iam.googleapis.com/projects/N/locations/global/...", err);
    if (!is_wif && (!f->gke_project || !f->gke_provider))
        return fetch_cannot(r, "workload identity of the cluster is not configured",
                            "set identity.gke in the chart, set identity.provider, or use a Secret", err);
    snprintf(ret->method, sizeof ret->method, "%s", is_wif ? "wif" : "gke");
    if (is_wif) {
        snprintf(sts_audience, sizeof sts_audience, "%s", r->provider);
        asked = str_of(r->audience ? r->audience : r->provider);
    } else {
        snprintf(pool, sizeof pool, "%s.svc.id.goog", f->gke_project);
        snprintf(sts_audience, sizeof sts_audience, "identitynamespace:%s:%s", pool, f->gke_provider);
        asked = str_of(pool);
    }
    struct grant g = {.kind = GRANT_GCP_TOKEN, .audience = str_of(sts_audience), .email = email};
    if (email.len)
        snprintf(ret->principal, sizeof ret->principal, "%.*s", STR_FMT(email));
    else
        snprintf(ret->principal, sizeof ret->principal, "ns/%s/sa/%s", r->ns, r->name);
    return fetch_exchange_minted(f, r, asked, &g, ret, err);
}

/* Of a workload identity provider, or of GKE's pool "PROJECT.svc.id.goog". */
static bool is_audience(struct str s)
{
    return str_starts(s, STR("//iam.googleapis.com/")) || str_starts(s, STR("https://iam.googleapis.com/")) ||
           (str_ends(s, STR(".svc.id.goog")) && str_find(s, '/') < 0 && str_find(s, ':') < 0);
}

const struct broker_kind broker_gcp = {
    .methods = 1 << IDENTITY_GKE | 1 << IDENTITY_WIF,
    .advice = "use gke or wif, or a Secret",
    .is_audience = is_audience,
    .read_secret = read_secret,
    .exchange = exchange,
};
