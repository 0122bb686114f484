/* SPDX-License-Identifier: Apache-2.0 */
/* populate.h - the leader's work on claims: prime claims, Jobs that hydrate and export volumes, the status of
 * BucketSources, and events.
 * home: any thread. Works on its own threads "populate/N"; the informers call back on the client's loop.
 *
 * Every replica has one, so that a new leader knows the cluster at once. It writes only while it holds the lease, and
 * the lease fences each write. */
#pragma once

#include "api/source.h"
#include "kube/client.h"
#include "kube/event.h"
#include "kube/informer.h"
#include "kube/lease.h"
#include "populate/job.h"

struct populate;

/* All borrowed: they outlive the populator. */
struct populate_options {
    struct kube *kube;
    const struct kube_lease *lease; /* NULL: this process always leads */
    struct kube_events *events;
    struct kube_informer *volumes; /* CisternVolumes, with the indexes below under these numbers */
    int volumes_by_claim, volumes_by_source, volumes_by_node;
    struct kube_informer *pvs; /* PersistentVolumes, with the index below under this number */
    int pvs_by_claim;
    struct kube_informer *pools; /* CisternPools, with the index below under this number */
    int pools_by_name;
    struct kube_informer *nodes;
    bool cross_namespace; /* claims may name sources of other namespaces that have a ReferenceGrant */
    struct job_options job;
    unsigned exports_max, exports_a_node_max, hydrations_a_node_max; /* at once; 0: no limit */
    uint64_t drain_failing_ns;  /* time for which a failing export blocks a drain; 0: no limit */
    uint64_t drain_volumes_max; /* failing volumes of a namespace that block a drain; 0: no limit */
    void *ctx;
    /* Probes the store of a source, as broker_probe(). NULL: a source's status comes from its volumes only. */
    int (*probe)(void *ctx, const struct api_source *s, struct api_probe *ret, struct err *err);
    bool (*may_probe)(void *ctx); /* false: the addresses that a probe must not reach are not known yet */
};

/* The indexes on CisternVolumes: by the uid of the target claim (spec.claimRef.uid), by "<namespace>/<name>" of the
 * source, and by spec.nodeName. */
void populate_index_source(const json *volume, struct sbuf *ret_value);
/* On PersistentVolumes: by the uid of the target claim, also of those that the prime claim has. */
void populate_index_pv(const json *pv, struct sbuf *ret_value);
/* On CisternPools: by the name that a StorageClass has as its parameter, spec.pool. */

must_check int populate_new(const struct populate_options *o, struct populate **ret, struct err *err);

/* Waits for running reconcile functions; no other starts. After kube_stop(), while the loop runs, on another thread. */
void populate_stop(struct populate *p);
/* After populate_stop(), on the loop or after its end. NULL is fine. */
void populate_free(struct populate *p);

/* This process leads now: enqueues all objects. */
void populate_lead(struct populate *p);

/* For the informer's callbacks: a CisternVolume was added, changed or deleted. `p` may be NULL. */
void populate_volume_changed(struct populate *p, struct str name, const json *volume);
/* The same for a PersistentVolume. */
void populate_pv_changed(struct populate *p, const json *pv);
/* A node was added, deleted or cordoned: the Jobs of its volumes depend on it. */
void populate_node_changed(struct populate *p, struct str node);
