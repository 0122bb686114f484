/* SPDX-License-Identifier: Apache-2.0 */
/* redirect.h - where a store's redirect leads, and whether we go there. Pure.
 *
 * A request is signed for a host, and what is uploaded is for one: they go to the provider that was named and to nobody
 * else. Its hosts are "s3.REGION.DOMAIN", "s3.dualstack.REGION.DOMAIN" and "s3-REGION.DOMAIN", the bucket in front or
 * not, by the scheme and the port that were named; below DOMAIN there may be hosts of its customers. */
#pragma once

#include "endpoint.h"

struct redirect {
    char endpoint[256]; /* "https://s3.eu-west-1.amazonaws.com": the bucket, and what it led to, are left out */
    char region[64];    /* empty: the host does not tell */
};

/* `from`: the endpoint that was asked, for `region`. False: it leads to somebody else, or nowhere. */
bool redirect_read(struct str location, const struct endpoint *from, struct str region, struct str bucket,
                   struct redirect *ret);
