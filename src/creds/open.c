/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the source of credentials: of a store's options, or of a grant. */
#include "creds/grant.h"
#include "private.h"
#include <stdio.h>

/* The vendor's chain. */
static int (*const open_chain[CREDS_KINDS])(const struct creds_options *o, struct creds **ret, struct err *err) = {
    [CREDS_AWS] = creds_open_aws, [CREDS_GOOGLE] = creds_open_gcp};

int creds_open(const struct creds_options *o, struct creds **ret, struct err *err)
{
    if (!o->identity && !o->anonymous)
        return creds_has_broker() ? creds_open_broker(o->kind, ret, err) : open_chain[o->kind](o, ret, err);
    *ret = o->identity
               ? creds_new(&(struct creds_source){.name = "the given identity"}, creds_identity_ref(o->identity))
               : creds_new_anonymous();
    return 0;
}

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
