/* SPDX-License-Identifier: Apache-2.0 */
/* trust.h - where what proves who we are may go. Hosts that a token or a role's signature goes to are made here, or
 * judged here, and nowhere else: the provider's own, and those that an administrator lists.
 * home: any thread. */
#pragma once

#include "io/guard.h"

enum trust {
    TRUST_NOBODY,   /* anybody's server: a user wrote it */
    TRUST_LISTED,   /* an administrator vouches for it (guard_trusts) */
    TRUST_PROVIDER, /* Amazon's or Google's own, over https; also where no endpoint was named */
};

/* `endpoint` empty: the provider's default. `g` may be NULL. Pure. */
enum trust trust_of(const char *scheme, struct str endpoint, const struct guard *g);

/* "https://SERVICE.REGION.amazonaws.com": ERR_INVALID (CIS1002) if `region` does not look like a region of AWS,
 * whatever else it may be elsewhere. Pure. */
enum { TRUST_URL_MAX = 128 };
must_check int trust_aws_url(const char *service, const char *region, char buf[TRUST_URL_MAX], struct err *err);

/* The guard that whoever started this process gives it: the file of CISTERN_GUARD_FILE. *ret NULL: a person did, who
 * may go anywhere. A file that is missing closes what is always closed, and trusts nobody. The guard lives as long as
 * the process. */
must_check int trust_environment(const struct guard **ret, struct err *err);
