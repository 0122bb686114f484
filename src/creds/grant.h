/* SPDX-License-Identifier: Apache-2.0 */
/* grant.h - exchanges a token or key for a short-lived cloud credential, once. creds.h does the caching. Endpoints are
 * overridden by CISTERN_GCP_STS_URL, CISTERN_GCP_IAM_URL, CISTERN_GCP_OAUTH_URL and AWS_ENDPOINT_URL_STS:
 * "https://sts.example", without a path.
 * Code: open.c. */
#pragma once

#include "creds/creds.h"

enum grant_kind {
    GRANT_GCP_TOKEN, /* token, audience, email: Google's STS, and the service account's impersonation */
    GRANT_GCP_KEY,   /* key: an assertion signed with a service account's key */
    GRANT_AWS_TOKEN, /* token, role_arn, region, session: AssumeRoleWithWebIdentity */
    GRANT_AWS_ROLE,  /* as, external_id, role_arn, region, session: AssumeRole */
    GRANT_OWN,       /* own, region: the identity of this process, from the vendor's chain */
};

/* Views: the open copies what it needs, and the caller wipes the secret ones afterwards. */
struct grant {
    enum grant_kind kind;
    enum creds_kind own;
    struct str token; /* secret: of Kubernetes */
    struct str audience;
    struct str email; /* empty: no impersonation */
    struct str key;   /* secret: a service account's file, {"type": "service_account", ...} */
    struct str role_arn;
    struct str external_id;
    struct creds_identity *as; /* borrowed: it signs */
    struct str region;         /* empty: us-east-1 */
    struct str session;        /* for the cloud's own log; empty: "cistern" */
};

/* Waits, 30 s at most; any thread but the worker's loop, whose web sends the requests. *ret is the caller's.
 * *ret_retry_after_ns is set on failure: the earliest time at which the server accepts a retry. */
must_check int grant_exchange(const struct grant *g, struct worker *worker, struct creds_identity **ret,
                              uint64_t *ret_retry_after_ns, struct err *err);
