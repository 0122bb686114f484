/* SPDX-License-Identifier: Apache-2.0 */
/* meta.h - what every object of the API server carries, as far as we look at it.
 * home: whoever owns the object. Strings are owned, NULL where nothing was said. */
#pragma once

#include "util/err.h"
#include "util/json.h"

struct api_meta {
    char *name;
    char *namespace; /* NULL: of the cluster */
    char *uid;
    char *resource_version;
    uint64_t generation;
    int64_t created_ns; /* wall clock; 0: not known */
    int64_t deleted_ns; /* deletionTimestamp; 0: nobody asked for it */
    bool is_held;       /* carries our finalizer cistern.io/release */
};

/* `j` is the object. ERR_INVALID if it is none, or has no name. */
must_check int api_meta_read(const json *j, struct api_meta *ret, struct err *err);
void api_meta_done(struct api_meta *m); /* may run twice */

/* A document that names an object of ours: apiVersion, kind, metadata.name, and metadata.uid where it is known, so that
 * the API server refuses to apply it to a successor of the same name. The caller frees. */
json *api_document(const char *kind, const struct api_meta *m);
