/* SPDX-License-Identifier: Apache-2.0 */
/* uri.h - the URIs of the object stores and their schemes: s3://bucket/prefix, gs://bucket/prefix, file:///directory.
 * Pure. */
#pragma once

#include "err.h"
#include "str.h"

struct scheme {
    const char *name;           /* "s3" */
    bool is_path;               /* its URIs hold an absolute path and no bucket */
    bool bills_project;         /* Requester Pays names the project that is billed */
    const char *bucket_extra;   /* characters of bucket names beside a-z, 0-9, '-' and '.'; NULL: none */
    unsigned bucket_dotted_max; /* the longest bucket name that has dots; 0: as without dots */
};

extern const struct scheme schemes[]; /* in the order of stores.def */

const struct scheme *scheme_find(struct str name); /* NULL: unknown */

/* Views into the text that was split. */
struct uri {
    const struct scheme *scheme; /* NULL: unknown, and the other fields are empty */
    struct str bucket;           /* empty for file:// */
    struct str prefix;           /* for file:// the path, with its leading '/' */
};

/* Checks the scheme, but neither bucket nor prefix. A key is taken byte for byte: nothing is percent-decoded, '?' and
 * '#' are bytes like any other. */
struct uri uri_split(struct str text);

enum { URI_KEY_MAX = 1024 }; /* what S3 and GCS take */

/* Every rule for a URI that a store can open. ERR_INVALID (CIS_URI_INVALID): the sentence names what is wrong. */
must_check int uri_check(struct str text, struct err *err);

/* Returns `text`, an endpoint or a store's URI, for a message: at most URI_SHOWN_MAX bytes, without the user info
 * before '@', which may be a password. buf of URI_SHOWN_ROOM; returns buf. */
enum { URI_SHOWN_MAX = 100, URI_SHOWN_ROOM = URI_SHOWN_MAX + 8 };
char *uri_shown(struct str text, char *buf);
