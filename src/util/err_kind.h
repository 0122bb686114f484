/* SPDX-License-Identifier: Apache-2.0 */
/* err_kind.h - groups error ids by their cause, for conditions and events. home: any; pure. */
#pragma once

#include "util/err.h"
#include "util/str.h"

enum err_kind {
    ERR_KIND_OTHER,
    ERR_KIND_DENIED,          /* credentials are missing, invalid, or have no permission */
    ERR_KIND_UNAUTHENTICATED, /* no valid credentials can be made: wrong clock, export identity is gone */
    ERR_KIND_OBJECT_NOT_FOUND,
    ERR_KIND_BUCKET_NOT_FOUND,
    ERR_KIND_EMPTY,        /* the source selects no object */
    ERR_KIND_UNREACHABLE,  /* the store does not answer */
    ERR_KIND_CHANGED,      /* the objects differ from the listing */
    ERR_KIND_TOO_LARGE,    /* the objects do not fit */
    ERR_KIND_LISTED_TWICE, /* two objects have the same path */
    ERR_KIND_STORAGE_CLASS_UNKNOWN,
    ERR_KIND_MISMATCH,   /* the received bytes have another checksum than the store reports */
    ERR_KIND_STORE_BUSY, /* the store answered with 429, 5xx or an unexpected status */

    /* Of the credential broker: */
    ERR_KIND_IDENTITY_GONE,  /* the ServiceAccount, the Secret or the RoleBinding does not exist */
    ERR_KIND_CALLER_UNKNOWN, /* the token was not accepted */
    ERR_KIND_CALLER_DENIED,  /* the caller may not have these credentials */
    ERR_KIND_THROTTLED,
};

enum err_kind err_kind_of(enum err_id id);

/* Reads an id as text ("CIS" and four digits), as another process wrote it. ERR_KIND_OTHER for other texts and NULL. */
enum err_kind err_kind_of_text(const char *id);

/* Writes the id as text into `buf`; "" without an id. */
enum { ERR_ID_TEXT_MAX = 16 };
const char *err_id_text(enum err_id id, char buf[ERR_ID_TEXT_MAX]);
