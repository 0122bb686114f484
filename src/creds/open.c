/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the source of credentials: of a store's options, or of a grant. */
#include "creds/grant.h"
#include "private.h"
#include "util/env.h"
#include <stdio.h>

const struct creds_kind_row creds_kinds[CREDS_KINDS] = {
    [CREDS_AWS] = {"s3", creds_open_aws, reply_read_access_key, trust_is_amazon},
    [CREDS_GOOGLE] = {"gs", creds_open_gcp, reply_read_token, trust_is_google},
};

const char *creds_kind_name(enum creds_kind kind)
{
    return creds_kinds[kind].name;
}

enum creds_kind creds_kind_of(struct str name)
{
    for (enum creds_kind kind = CREDS_NONE + 1; kind < CREDS_KINDS; kind++)
        if (str_eq(name, str_of(creds_kinds[kind].name)))
            return kind;
    return CREDS_NONE;
}

int creds_open(const struct creds_options *o, struct creds **ret, struct err *err)
{
    if (!o->identity && !o->anonymous)
        return env_get("CISTERN_BROKER_URL") ? creds_open_broker(o->kind, ret, err)
                                             : creds_kinds[o->kind].open(o, ret, err);
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
    case GRANT_AWS_TOKEN:
    case GRANT_AWS_ROLE:
        return creds_open_aws_grant(g, ret, err);
    case GRANT_OWN:
        snprintf(region, sizeof region, "%.*s", STR_FMT(g->region.len ? g->region : STR("us-east-1")));
        return creds_kinds[g->own].open(&own, ret, err);
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
