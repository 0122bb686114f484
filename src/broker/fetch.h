/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.h - fetches the credential of one route: reads the Secret, or exchanges a token of the account at the cloud.
 * home: any thread but the loop's; waits. */
#pragma once

#include "creds/grant.h"
#include "kube/client.h"
#include "route.h"

struct fetcher {
    struct kube *kube;     /* borrowed */
    struct worker *worker; /* borrowed: its web sends the requests */
    const char *own_ns;
    bool require_opt_in;
    const char *gke_project, *gke_provider; /* NULL: no method gke */
    const char *const *audiences;
    size_t audience_count;
};

enum { FETCH_METHOD_MAX = 16, FETCH_PRINCIPAL_MAX = 320 };

struct fetched {
    struct creds_identity *identity;     /* owned; valid for an hour at most. NULL: the fetch failed */
    uint64_t retry_after_ns;             /* after a failure: time until a retry is useful; 0: unknown */
    char method[FETCH_METHOD_MAX];       /* "irsa": how */
    char principal[FETCH_PRINCIPAL_MAX]; /* as whom */
};

/* *ret is set on failure, too. */
must_check int fetch_route(const struct fetcher *f, const struct route *r, struct fetched *ret, struct err *err);
