/* SPDX-License-Identifier: Apache-2.0 */
/* scheme.h - the URI schemes of the object stores. Pure. */
#pragma once

#include "str.h"

struct scheme {
    const char *name;   /* "s3" */
    bool is_path;       /* its URIs hold an absolute path and no bucket */
    bool bills_project; /* Requester Pays names the project that is billed */
};

extern const struct scheme schemes[]; /* in the order of stores.def */

const struct scheme *scheme_find(struct str name); /* NULL: unknown */
const struct scheme *scheme_of(struct str uri);    /* the same */
struct str scheme_rest(struct str uri);            /* the text behind "://"; only for a known scheme */
