/* SPDX-License-Identifier: Apache-2.0 */
/* ask.h - what a call says and what it is answered, as text. Pure. home: any. */
#pragma once

#include "store/creds.h"
#include "util/err.h"
#include "util/str.h"

enum { ASK_VOLUME_MAX = 254 };

struct ask {
    char volume[ASK_VOLUME_MAX]; /* the CisternVolume's name */
    bool is_export;
    char scheme[8];                   /* "s3", "gs"; "": the source's first */
    char refused[IDENTITY_PRINT_MAX]; /* of a credential that the store refused; "": none */
};

/* {"volume": "pvc-1", "for": "hydrate", "scheme": "s3", "refused": "0123456789abcdef"}; the last two may be absent. */
must_check int ask_parse(struct str body, struct ask *ret, struct err *err);

/* "Bearer abc" -> "abc". ERR_DENIED (CIS1902). */
must_check int ask_token(struct str authorization, struct str *ret, struct err *err);

struct grant_words {
    const char *scheme; /* "s3", "gs", "anonymous" */
    const struct identity *identity;
    const char *method, *principal;
};

/* The document that a credential travels in. ERR_CORRUPT: it holds what no credential holds. */
must_check int answer_credential(const struct grant_words *g, struct sbuf *ret, struct err *err);

/* The document of an error; returns the HTTP status. */
unsigned answer_error(const struct err *err, struct sbuf *ret);
