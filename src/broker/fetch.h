/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.h - one way gone to its end: the account's token or the Secret, and the exchange at the cloud.
 * home: any thread but the loop's; waits. */
#pragma once

#include "kube/client.h"
#include "route.h"
#include "store/grant.h"

struct fetcher {
    struct kube *kube;     /* borrowed */
    struct worker *worker; /* borrowed: whose web makes the exchanges */
    const char *own_ns;
    bool require_opt_in;
    const char *gke_project, *gke_provider; /* NULL: no method gke */
    const char *const *audiences;
    size_t audience_count;
};

enum { FETCH_METHOD_MAX = 16, FETCH_PRINCIPAL_MAX = 320 };

struct fetched {
    struct identity *identity;           /* owned: an hour at most is left of it */
    char method[FETCH_METHOD_MAX];       /* "irsa": how */
    char principal[FETCH_PRINCIPAL_MAX]; /* as whom */
};

/* *ret_retry_after_ns is set on failure: so long it is of no use to try again; 0: nobody knows. */
must_check int fetch_route(const struct fetcher *f, const struct route *r, struct fetched *ret,
                           uint64_t *ret_retry_after_ns, struct err *err);

/* May a token be made for this audience? Never for the API server's: only for those of the clouds, and what the
 * administrator lists. Pure. */
bool fetch_may_ask_for(const struct fetcher *f, struct str audience);
