/* SPDX-License-Identifier: Apache-2.0 */
/* populate.h - the leader's work on claims: prime claims, the Jobs that fill volumes and export them, the status of
 * BucketSources, and what people hear of it all.
 * home: any thread. Works on threads of its own, "populate/N"; the informers call back on the client's loop.
 *
 * Every replica keeps one, so that a new leader knows the cluster at once; only while the lease is held does it write,
 * and each write is fenced by it. */
#pragma once

#include "api/source.h"
#include "kube/client.h"
#include "kube/event.h"
#include "kube/informer.h"
#include "kube/lease.h"
#include "populate/job.h"

struct populate;

/* All borrowed: they outlive what is made of them. */
struct populate_options {
    struct kube *kube;
    const struct kube_lease *lease; /* NULL: we always lead */
    struct kube_events *events;
    struct kube_informer *volumes; /* CisternVolumes, with the indexes below under these numbers */
    int volumes_by_claim, volumes_by_source;
    struct kube_informer *pvs; /* PersistentVolumes, with the index below under this number */
    int pvs_by_claim;
    struct kube_informer *pools; /* CisternPools */
    struct kube_informer *nodes;
    bool cross_namespace; /* sources of other namespaces may be named, where a ReferenceGrant allows it */
    struct job_options job;
    unsigned exports_max, exports_a_node_max; /* that run at once; 0: no limit */
    uint64_t drain_failing_ns;  /* so long after its export began to fail a volume holds its node; 0: ever */
    uint64_t drain_volumes_max; /* of a namespace, that fail and hold their nodes; 0: any number */
    void *ctx;
    /* Does this source's store answer? As broker_probe(). NULL: nobody asks, and a source's status is its volumes'. */
    int (*probe)(void *ctx, const struct api_source *s, struct api_probe *ret, struct err *err);
};

/* The indexes on CisternVolumes: by the uid of the target claim, and by "<namespace>/<name>" of the source. */
void populate_index_claim(const json *volume, struct sbuf *ret_value);
void populate_index_source(const json *volume, struct sbuf *ret_value);
/* On PersistentVolumes: by the uid of the target claim, be it theirs or their prime claim's. */
void populate_index_pv(const json *pv, struct sbuf *ret_value);

must_check int populate_new(const struct populate_options *o, struct populate **ret, struct err *err);

/* Not on the loop, which still runs, and after kube_stop(): begins nothing more and waits for what is under way. */
void populate_stop(struct populate *p);
/* Stopped before, and on the loop or behind its end. NULL is fine. */
void populate_free(struct populate *p);

/* We lead now: everything is looked at. */
void populate_lead(struct populate *p);

/* A CisternVolume was added, changed, or has gone: its informer's callbacks say so. NULL is fine. */
void populate_volume_changed(struct populate *p, struct str name, const json *volume);
/* The same of a PersistentVolume. */
void populate_pv_changed(struct populate *p, const json *pv);
