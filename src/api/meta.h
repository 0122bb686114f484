/* SPDX-License-Identifier: Apache-2.0 */
/* meta.h - reads the metadata of an object of the API server.
 * home: the object's owner. Strings are owned, NULL if missing. */
#pragma once

#include "kube/client.h"
#include "kube/event.h"
#include "util/err.h"
#include "util/json.h"

struct api_meta {
    char *name;
    char *namespace; /* NULL: of the cluster */
    char *uid;
    char *resource_version;
    uint64_t generation;
    int64_t created_ns; /* wall clock; 0: not known */
    int64_t deleted_ns; /* deletionTimestamp; 0: not deleted */
    bool is_held;       /* has the finalizer cistern.io/release */
};

/* `j` is the object. ERR_INVALID without a name. */
must_check int api_meta_read(const json *j, struct api_meta *ret, struct err *err);
void api_meta_done(struct api_meta *m); /* may run twice */

/* For events about the object. */
struct kube_ref api_ref(const struct kube_resource *resource, const struct api_meta *m);

/* A document with apiVersion, kind, metadata.name, and metadata.uid if known. With the uid, the API server refuses to
 * apply it to a later object of the same name. The caller frees. */
json *api_document(const struct kube_resource *resource, const struct api_meta *m);

/* Applies the status of the object that `q` names by resource, ns and name; q.field_manager, q.fence and *ret as in
 * kube_call(). Blocks. */
must_check int api_apply_status(struct kube *k, struct kube_request q, json *own_status, json **ret, struct err *err);
