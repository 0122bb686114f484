/* SPDX-License-Identifier: Apache-2.0 */
#include "creds/grant.h"
#include "private.h"
#include <stdio.h>

static int open_grant(const struct grant *g, struct creds **ret, struct err *err)
{
    char region[64];
    const struct creds_options own = {.region = region};
    switch (g->kind) {
    case GRANT_GCP_TOKEN:
    case GRANT_GCP_KEY:
        return creds_open_gcp_grant(g, ret, err);
    case GRANT_GCP_OWN:
        return creds_open_gcp(&own, ret, err);
    case GRANT_AWS_TOKEN:
    case GRANT_AWS_ROLE:
        return creds_open_aws_grant(g, ret, err);
    case GRANT_AWS_OWN:
        snprintf(region, sizeof region, "%.*s", STR_FMT(g->region.len ? g->region : STR("us-east-1")));
        return creds_open_aws(&own, ret, err);
    }
    return err_set(err, ERR_INTERNAL, "there is no grant of kind %d", (int)g->kind);
}

int grant_exchange(const struct grant *g, struct worker *worker, struct creds_identity **ret,
                   uint64_t *ret_retry_after_ns, struct err *err)
{
    struct creds *creds = NULL;
    int r = open_grant(g, &creds, err);
    if (r < 0)
        return r;
    r = creds_wait_on_loop(creds, worker, ret, err);
    if (r < 0)
        *ret_retry_after_ns = creds->pause_ns;
    creds_free(creds);
    return r;
}
