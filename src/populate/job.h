/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - the Kubernetes Jobs that work on volumes: which of them a volume needs now, and what they look like. Pure.
 * home: any.
 *
 * `hydrate-<volumeID>` and `export-<volumeID>`, in our namespace, on the volume's node, in the volume's folder: no
 * owner, found by name and label. A Job is one try: what a try achieved is on the node's disk and reaches the
 * CisternVolume's status from there, so that a Job may go at any time, and the next one continues.
 *
 * `hold-<volumeID>` works on nothing. It is there as long as a volume has files that may not be in the bucket yet, and
 * keeps its node: who drains a node looks once which pods run there, before the last one's end has begun the export. */
#pragma once

#include "util/json.h"
#include "volume/work.h"

#define JOB_LABEL "cistern.io/job"              /* "hydrate", "export", "hold" */
#define JOB_LABEL_VOLUME "cistern.io/volume"    /* the volume's id */
#define JOB_LABEL_CLAIM "cistern.io/claim-uid"  /* of the target claim */
#define JOB_ANNOTATION_ORDER "cistern.io/order" /* the CisternVolume's name */
#define JOB_ANNOTATION_PURPOSE "cistern.io/purpose"
#define JOB_ANNOTATION_NODE "cistern.io/node"
#define JOB_LABEL_DRAIN "cistern.io/drain" /* "open": the disruption budget leaves it alone */

enum { JOB_NAME_MAX = 64 };

/* ---- what there is ----------------------------------------------------------------------------------------------- */

enum job_end { JOB_WORKS, JOB_ENDED, JOB_BROKE };

struct job {
    struct str name, uid, order; /* views into the object */
    enum job_kind kind;
    enum job_end end;
    bool deleting;
    bool lets_drain; /* its pod may be evicted */
};

must_check int job_read(const json *j, struct job *ret, struct err *err);

/* ---- what is needed ---------------------------------------------------------------------------------------------- */

/* What a decision about one kind of Job of one volume rests on. */
struct job_facts {
    bool wanted;            /* there is such work to do, and it may be done now */
    enum job_kind kind;     /* for what */
    const struct job *job;  /* NULL: none */
    bool lets_drain;        /* it holds its node no more */
    uint64_t ended_for_ns;  /* so long ago its end was first seen, by our clock: others may be hours apart */
    uint64_t retry_left_ns; /* no try before that time has passed */
};

enum job_action { JOB_LEAVE, JOB_CREATE, JOB_DELETE };

struct job_step {
    enum job_action action;
    uint64_t again_ns; /* look again after this; 0: when something changes */
    bool failed;       /* the Job that is to be deleted was a try that failed */
};

struct job_step job_next(const struct job_facts *f);

/* How long after its `failures`th failure a try is made again: a second and twice as long each time, a minute at the
 * most for what comes from a bucket (a source may appear, an access be granted), five for what goes to one. */
uint64_t job_wait_ns(enum job_kind kind, unsigned failures);

/* ---- what it looks like ------------------------------------------------------------------------------------------ */

struct job_options {
    const char *ns;
    const char *image;
    const char *pull_policy;    /* NULL: the cluster's own choice */
    const char *pull_secret;    /* NULL: none */
    const char *account;        /* service account; its token is mounted for the broker only */
    const char *priority_class; /* NULL: none */
    const char *broker_url;     /* https://cistern-broker.<ns>.svc */
    const char *requests_cpu, *requests_memory, *limits_memory;
    unsigned ttl_seconds;   /* after its end, if nobody removed it before */
    unsigned backoff_limit; /* tries of one Job */
};

/* What it is to work on. */
struct job_volume {
    const char *id;        /* v1-... */
    const char *order;     /* name of the CisternVolume */
    const char *claim;     /* "train/weights", NULL: none */
    const char *claim_uid; /* NULL: none */
    const char *node;
    const char *folder; /* <pool>/volumes/<id> on the node */
    bool lets_drain;    /* its export has failed for too long to hold the node */
};

char *job_object_name(enum job_kind kind, const char *volume_id, char ret[JOB_NAME_MAX]);
json *job_json(const struct job_options *o, const struct job_volume *v, enum job_kind kind); /* the caller frees */
