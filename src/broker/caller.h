/* SPDX-License-Identifier: Apache-2.0 */
/* caller.h - authenticates callers by their token, and authorizes their requests.
 * home: any thread; the cache of reviews has its own lock. */
#pragma once

#include "api/volume.h"
#include "kube/client.h"

enum { CALLER_NAME_MAX = 254, CALLER_USER_MAX = 320 };

enum caller_kind { CALLER_JOB, CALLER_NODE };

struct caller {
    enum caller_kind kind;
    char user[CALLER_USER_MAX];    /* "system:serviceaccount:cistern-system:cistern-job" */
    char node[CALLER_NAME_MAX];    /* of the pod, from the token; "": none */
    char pod[CALLER_NAME_MAX];     /* from the token; "": not bound to a pod */
    char pod_uid[CALLER_NAME_MAX]; /* likewise */
};

struct caller_rules {
    struct str ns, node_account, job_account;
};

/* Rejects a token with another audience, or an expired one, without a request to the API server. Success proves
 * nothing. Pure. ERR_DENIED (CIS_BROKER_CALLER_UNKNOWN). */
must_check int caller_looks_right(struct str token, int64_t wall_ns, struct err *err);

/* Reads the status of a TokenReview. Pure. ERR_DENIED: the token is invalid (CIS_BROKER_CALLER_UNKNOWN), or of another
 * service account (CIS_BROKER_OTHER_VOLUME). */
must_check int caller_read(const json *review, const struct caller_rules *rules, struct caller *ret, struct err *err);

/* May this caller have the credentials of `v`? `pod` is the caller's present pod (NULL: for the node driver). Pure.
 * ERR_DENIED (CIS_BROKER_OTHER_VOLUME). */
must_check int caller_may(const struct caller *c, const struct api_volume *v, bool is_export, const json *pod,
                          struct err *err);

/* Cache of reviews for ten seconds, by the token's hash. caller_may finds pods that were deleted since. */
struct callers;
struct callers *callers_new(struct kube *k, const struct caller_rules *rules); /* the texts are borrowed */
void callers_free(struct callers *own_c);
must_check int callers_find(struct callers *c, struct str token, struct caller *ret, struct err *err);

/* Reads the pod that the token is bound to. ERR_DENIED (CIS_BROKER_CALLER_UNKNOWN): it was deleted, or replaced. */
must_check int callers_pod(struct callers *c, const struct caller *caller, json **ret, struct err *err);
