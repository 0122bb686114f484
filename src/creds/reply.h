/* SPDX-License-Identifier: Apache-2.0 */
/* reply.h - parses the replies of identity servers into an identity or an error. Pure. Errors repeat the server's
 * words, cut, and contain no request data. The caller owns *ret. */
#pragma once

#include "creds/creds.h"

/* The error for a failed status: ERR_AGAIN or ERR_DENIED. */
int reply_status(int status, struct err *err);

/* Is it safe as an HTTP header value? */
bool reply_is_token(struct str s);

/* A token reply of RFC 6749, as Google's token servers, STS and metadata server send. */
must_check int reply_token(int status, struct str body, struct creds_identity **ret, struct err *err);

/* The reply to generateAccessToken: a service account's token. */
must_check int reply_impersonated(int status, struct str body, struct creds_identity **ret, struct err *err);

/* The keys of a container or machine, from AWS's metadata endpoints. */
must_check int reply_keys(int status, struct str body, struct creds_identity **ret, struct err *err);

/* AssumeRoleWithWebIdentity. */
must_check int reply_role(int status, struct str body, struct creds_identity **ret, struct err *err);

/* The reply of Cistern's broker, for a store that needs this kind. */
must_check int reply_broker(int status, struct str body, enum creds_kind kind, struct creds_identity **ret,
                            struct err *err);

/* "Bearer <token>", valid for `seconds`; 0: unknown */
struct creds_identity *creds_identity_bearer(struct str token, uint64_t seconds);
