/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - decides which Kubernetes Jobs a volume needs, and builds them. Pure. home: any.
 *
 * `hydrate-<volumeID>` and `export-<volumeID>` run in Cistern's namespace, on the volume's node, in its directory. They
 * have no owner and are found by name and label. A Job is one try. Its result is on the node's disk, and the node
 * reports it in the CisternVolume's status. So a Job may be deleted at any time, and the next one resumes.
 *
 * `hold-<volumeID>` does no work. It exists while a volume may have files that are not in the bucket. A drain lists the
 * pods of the node once, before the end of the last pod starts the export: this pod makes it wait. */
#pragma once

#include "spec/job_kind.h"
#include "util/json.h"

#define JOB_LABEL "cistern.io/job"              /* "hydrate", "export", "hold" */
#define JOB_LABEL_VOLUME "cistern.io/volume"    /* the volume's id */
#define JOB_LABEL_CLAIM "cistern.io/claim-uid"  /* of the target claim */
#define JOB_ANNOTATION_ORDER "cistern.io/order" /* the CisternVolume's name */
#define JOB_ANNOTATION_PURPOSE "cistern.io/purpose"
#define JOB_ANNOTATION_NODE "cistern.io/node"
#define JOB_ANNOTATION_CLAIM "cistern.io/claim" /* "train/weights" */
#define JOB_LABEL_DRAIN "cistern.io/drain"      /* "open": the disruption budget does not protect it */

/* ---- existing Jobs ----------------------------------------------------------------------------------------------- */

enum job_end { JOB_WORKS, JOB_ENDED, JOB_BROKE };

struct volume_job {
    struct str name, uid, order; /* views into the object */
    enum job_kind kind;
    enum job_end end;
    bool deleting;
    bool lets_drain; /* its pod may be evicted */
};

must_check int job_read(const json *j, struct volume_job *ret, struct err *err);

/* ---- the next step ----------------------------------------------------------------------------------------------- */

/* Input of a decision about one kind of Job of one volume. */
struct job_facts {
    bool wanted;                  /* there is work for it, and it may run now */
    enum job_kind kind;           /* of Job */
    const struct volume_job *job; /* NULL: none */
    bool lets_drain;              /* it does not block a drain any more */
    uint64_t ended_for_ns;        /* time since its end was first seen, by the clock of this machine */
    uint64_t retry_left_ns;       /* time until the next try */
};

enum job_action { JOB_LEAVE, JOB_CREATE, JOB_DELETE };

struct job_step {
    enum job_action action;
    uint64_t again_ns; /* reconcile again after this; 0: on the next change */
    bool failed;       /* the Job to delete has failed */
};

struct job_step job_next(const struct job_facts *f);

/* Back-off after the `failures`th failure: one second, doubled each time. At most a minute for a hydration (a
 * permission may be granted any time), five for an export. */
uint64_t job_wait_ns(enum job_kind kind, unsigned failures);

/* ---- new Jobs ---------------------------------------------------------------------------------------------------- */

struct job_options {
    const char *ns;
    const char *image;
    const char *pull_policy;    /* NULL: the default of the cluster */
    const char *pull_secret;    /* NULL: none */
    const char *account;        /* service account; its token is mounted for the broker only */
    const char *priority_class; /* NULL: none */
    const char *broker_url;     /* https://cistern-broker.<ns>.svc */
    const char *requests_cpu, *requests_memory, *limits_memory;
    unsigned ttl_seconds;   /* after its end */
    unsigned backoff_limit; /* tries of one Job */
};

/* The volume that a Job works on. */
struct job_volume {
    const char *id;        /* v1-... */
    const char *order;     /* name of the CisternVolume */
    const char *claim;     /* "train/weights", NULL: none */
    const char *claim_uid; /* NULL: none */
    const char *node;
    const char *directory; /* <pool>/volumes/<id> on the node */
    bool lets_drain;       /* its export has failed for too long to block a drain */
};

json *job_json(const struct job_options *o, const struct job_volume *v, enum job_kind kind); /* the caller frees */
