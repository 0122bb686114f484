/* SPDX-License-Identifier: Apache-2.0 */
/* redirect.h - decides whether to follow a store's redirect. Pure. Signed requests and uploads go to the named
 * provider only: hosts "s3.REGION.DOMAIN", "s3.dualstack.REGION.DOMAIN" and "s3-REGION.DOMAIN", with or without the
 * bucket in front, same scheme and port. Other hosts below DOMAIN may belong to customers. */
#pragma once

#include "creds/endpoint.h"

struct redirect {
    char endpoint[256]; /* "https://s3.eu-west-1.amazonaws.com": without the bucket and the path */
    char region[64];    /* empty: the host does not tell */
};

/* `from`: the endpoint of the request, for `region`. False: do not follow. */
bool redirect_read(struct str location, const struct endpoint *from, struct str region, struct str bucket,
                   struct redirect *ret);
