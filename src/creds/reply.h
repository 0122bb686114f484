/* SPDX-License-Identifier: Apache-2.0 */
/* reply.h - parses the replies of identity servers into an identity or an error. Pure. Errors repeat the server's
 * words, cut, and contain no request data. The caller owns *ret. */
#pragma once

#include "creds/creds.h"

/* The error for a failed status: ERR_AGAIN or ERR_DENIED. */
int reply_status(int status, struct err *err);

/* Is it safe as an HTTP header value? */
bool reply_is_token(struct str s);

/* A token of RFC 6749 and its kin: Google's token servers, its STS, its metadata server. */
must_check int reply_token(int status, struct str body, struct creds_identity **ret, struct err *err);

/* generateAccessToken: a service account's for the one in hand. */
must_check int reply_impersonated(int status, struct str body, struct creds_identity **ret, struct err *err);

/* A container's or a machine's keys, as AWS's endpoints give them. */
must_check int reply_keys(int status, struct str body, struct creds_identity **ret, struct err *err);

/* AssumeRoleWithWebIdentity. */
must_check int reply_role(int status, struct str body, struct creds_identity **ret, struct err *err);

/* Our own broker's, for a store that takes this kind. */
must_check int reply_broker(int status, struct str body, enum creds_kind kind, struct creds_identity **ret,
                            struct err *err);

/* "Bearer <token>", valid for `seconds`; 0: unknown */
struct creds_identity *creds_identity_bearer(struct str token, uint64_t seconds);
