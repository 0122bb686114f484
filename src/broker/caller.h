/* SPDX-License-Identifier: Apache-2.0 */
/* caller.h - who calls, as the API server sees the token, and what that caller may have.
 * home: any thread; the memory of reviews is under its own lock. */
#pragma once

#include "api/volume.h"
#include "kube/client.h"

enum { CALLER_NAME_MAX = 254, CALLER_USER_MAX = 320 };

enum caller_kind { CALLER_JOB, CALLER_NODE };

struct caller {
    enum caller_kind kind;
    char user[CALLER_USER_MAX];    /* "system:serviceaccount:cistern-system:cistern-job" */
    char node[CALLER_NAME_MAX];    /* that the pod runs on, by the token's claim; "": it has none */
    char pod[CALLER_NAME_MAX];     /* by the token's claim; "": bound to none */
    char pod_uid[CALLER_NAME_MAX]; /* likewise */
};

struct caller_rules {
    struct str ns, node_account, job_account;
};

/* Worth a question to the API server? Looks into the token, which proves nothing: a token that says itself that it is
 * for somebody else, or expired, is refused without one. Pure. ERR_DENIED (CIS1902). */
must_check int caller_looks_right(struct str token, int64_t wall_ns, struct err *err);

/* Reads a TokenReview's answer. Pure. ERR_DENIED:
 * the token is none (CIS1902), or its bearer is none of ours (CIS1903). */
must_check int caller_read(const json *review, const struct caller_rules *rules, struct caller *ret, struct err *err);

/* May this caller have the credentials of `v` for that? `pod` is the caller's pod as it is now (NULL for a node's
 * agent). Pure. ERR_DENIED (CIS1903). */
must_check int caller_may(const struct caller *c, const struct api_volume *v, bool is_export, const json *pod,
                          struct err *err);

/* Reviews, remembered for ten seconds by the token's hash:
 * a pod that is deleted meanwhile is found out by caller_may. */
struct callers;
struct callers *callers_new(struct kube *k, const struct caller_rules *rules);
void callers_free(struct callers *own_c);
must_check int callers_find(struct callers *c, struct str token, struct caller *ret, struct err *err);

/* The pod that the caller's token is bound to: the caller's tree. ERR_DENIED (CIS1902) if it is gone, or another. */
must_check int callers_pod(struct callers *c, const struct caller *caller, json **ret, struct err *err);
