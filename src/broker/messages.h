/* SPDX-License-Identifier: Apache-2.0 */
/* messages.h - parses requests for credentials and writes the replies. Pure. home: any. */
#pragma once

#include "creds/creds.h"
#include "util/err.h"
#include "util/str.h"

enum { REQUEST_VOLUME_MAX = 254 };

struct credential_request {
    char volume[REQUEST_VOLUME_MAX]; /* the CisternVolume's name */
    bool is_export;
    enum creds_kind creds;                /* CREDS_NONE: that of the first source */
    char refused[CREDS_FINGERPRINT_SIZE]; /* fingerprint of a credential that the store rejected; "": none */
};

/* {"volume": "pvc-1", "for": "hydrate", "scheme": "s3", "refused": "0123456789abcdef"}; the last two may be absent. */
must_check int credential_request_parse(struct str body, struct credential_request *ret, struct err *err);

/* "Bearer abc" -> "abc". ERR_DENIED (CIS_BROKER_CALLER_UNKNOWN). */
must_check int bearer_token_of(struct str authorization, struct str *ret, struct err *err);

struct credential_reply {
    const char *scheme; /* "s3", "gs", "anonymous" */
    const struct creds_identity *identity;
    const char *method, *principal;
};

/* The reply with a credential. ERR_CORRUPT: the credential has invalid characters. */
must_check int reply_with_credential(const struct credential_reply *g, struct sbuf *ret, struct err *err);

/* The reply with an error; returns the HTTP status. */
unsigned reply_with_error(const struct err *err, struct sbuf *ret);
