/* SPDX-License-Identifier: Apache-2.0 */
/* trust.h - decides which servers may receive credentials: the provider's own, and those that an administrator lists.
 * home: any thread. */
#pragma once

#include "creds/creds.h"
#include "io/guard.h"

enum trust {
    TRUST_NOBODY,   /* a user named the server */
    TRUST_LISTED,   /* an administrator vouches for it (guard_trusts) */
    TRUST_PROVIDER, /* Amazon's or Google's own, over https; also the default endpoint */
};

/* `endpoint` empty: the provider's default. `g` may be NULL. Pure. */
enum trust trust_of(enum creds_kind kind, struct str endpoint, const struct guard *g);

/* "https://SERVICE.REGION.amazonaws.com": ERR_INVALID (CIS_ENDPOINT_INVALID) if `region` does not look like a region of
 * AWS. Pure. */
enum { TRUST_URL_MAX = 128 };
must_check int trust_aws_url(const char *service, const char *region, char buf[TRUST_URL_MAX], struct err *err);

/* Loads the guard of CISTERN_GUARD_FILE, which lives as long as the process. *ret NULL: not set, as for a command that
 * a person runs. A missing file blocks the default addresses and trusts no server. */
must_check int trust_environment(const struct guard **ret, struct err *err);
