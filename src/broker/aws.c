/* SPDX-License-Identifier: Apache-2.0 */
/* Amazon: access keys in a Secret; roles of service accounts, by IRSA or EKS Pod Identity. */
#include "kind.h"
#include "util/env.h"
#include <stdio.h>

#define ROLE_ANNOTATION "eks.amazonaws.com/role-arn"

static int read_secret(const struct fetcher *, const struct route *r, const json *secret, struct fetched *ret,
                       struct err *err)
{
    auto_creds_identity i = creds_identity_new();
    i->access_key_id = fetch_secret_value(secret, "access_key_id");
    i->secret = fetch_secret_value(secret, "secret_access_key");
    i->session_token = fetch_secret_value(secret, "session_token");
    if (!i->access_key_id || !i->secret)
        return err_fail(err, ERR_DENIED, CIS_SECRET_INVALID, "Secret '%s/%s': no access_key_id or secret_access_key",
                        r->ns, r->name);
    ret->identity = take(&i);
    return 0;
}

/* EKS gives credentials only to running pods, so the controller uses its own pod's. Its role assumes the account's
 * role, whose trust policy distinguishes accounts by the external ID. */
static int assume_role(const struct fetcher *f, const struct route *r, struct grant *g, struct fetched *ret,
                       struct err *err)
{
    const struct grant own = {.kind = GRANT_OWN, .own = CREDS_AWS, .region = g->region};
    auto_creds_identity controller = NULL;
    auto_sbuf account = SBUF(512);
    if (!env_get("AWS_CONTAINER_CREDENTIALS_FULL_URI"))
        return fetch_cannot(r, "the controller has no EKS Pod Identity",
                            "associate its service account cistern-controller with a role, and restart the controller",
                            err);
    int code = grant_exchange(&own, f->worker, &controller, &ret->retry_after_ns, err);
    if (code < 0)
        return err_wrap(err, "EKS Pod Identity of the controller");
    sbuf_addf(&account, "system:serviceaccount:%s:%s", r->ns, r->name);
    g->kind = GRANT_AWS_ROLE;
    g->as = controller;
    g->external_id = sbuf_str(&account);
    code = grant_exchange(g, f->worker, &ret->identity, &ret->retry_after_ns, err);
    return code < 0 ? err_wrap(err, "service account '%s/%s'", r->ns, r->name) : 0;
}

static int exchange(const struct fetcher *f, const struct route *r, const json *annotations, struct fetched *ret,
                    struct err *err)
{
    struct str role = STR_NULL;
    bool is_pod = r->method == IDENTITY_POD;
    char session[64];
    int code = fetch_read_annotation(r, annotations, ROLE_ANNOTATION, &role, err);
    if (code < 0)
        return code;
    if (role.len == 0)
        return fetch_cannot(r, "no annotation " ROLE_ANNOTATION, "annotate it with the ARN of a role", err);
    snprintf(session, sizeof session, "cistern-%.20s-%.30s", r->ns, r->name);
    struct grant g = {
        .kind = GRANT_AWS_TOKEN, .role_arn = role, .region = str_of(r->region), .session = str_of(session)};
    snprintf(ret->method, sizeof ret->method, "%s", is_pod ? "podIdentity" : "irsa");
    snprintf(ret->principal, sizeof ret->principal, "%.*s", STR_FMT(role));
    if (is_pod)
        return assume_role(f, r, &g, ret, err);
    return fetch_exchange_minted(f, r, r->audience ? str_of(r->audience) : STR("sts.amazonaws.com"), &g, ret, err);
}

static bool is_audience(struct str s)
{
    return str_eq(s, STR("sts.amazonaws.com")) || str_eq(s, STR("sts.amazonaws.com.cn"));
}

const struct broker_kind broker_aws = {
    .methods = 1 << IDENTITY_IRSA | 1 << IDENTITY_POD,
    .advice = "use irsa or podIdentity, or a Secret",
    .is_signed = true,
    .is_audience = is_audience,
    .read_secret = read_secret,
    .exchange = exchange,
};
