/* SPDX-License-Identifier: Apache-2.0 */
/* answer.h - what an identity server answered, read: who we are, or why we are nobody. Pure.
 * The sentences repeat a server's words, cut, and nothing that was sent. *ret is the caller's. */
#pragma once

#include "creds.h"

/* What a status that is no success says by itself: ERR_AGAIN, or ERR_DENIED. */
int answer_status(int status, struct err *err);

/* May it stand in a header? Nothing in it may end one. */
bool answer_is_token(struct str s);

/* A token of RFC 6749 and its kin: Google's token servers, its STS, its metadata server. */
must_check int answer_token(int status, struct str body, struct identity **ret, struct err *err);

/* generateAccessToken: a service account's for the one in hand. */
must_check int answer_impersonated(int status, struct str body, struct identity **ret, struct err *err);

/* A container's or a machine's keys, as AWS's endpoints give them. */
must_check int answer_keys(int status, struct str body, struct identity **ret, struct err *err);

/* AssumeRoleWithWebIdentity. */
must_check int answer_role(int status, struct str body, struct identity **ret, struct err *err);

/* Our own broker's, for a store of this scheme. */
must_check int answer_broker(int status, struct str body, struct str scheme, struct identity **ret, struct err *err);

/* "Bearer <token>", for so long; 0: it is not told. */
struct identity *identity_bearer(struct str token, uint64_t seconds);
