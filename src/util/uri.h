/* SPDX-License-Identifier: Apache-2.0 */
/* uri.h - the URIs of the object stores and their schemes: s3://bucket/prefix, gs://bucket/prefix, file:///directory.
 * Pure. */
#pragma once

#include "str.h"

struct scheme {
    const char *name;   /* "s3" */
    bool is_path;       /* its URIs hold an absolute path and no bucket */
    bool bills_project; /* Requester Pays names the project that is billed */
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
