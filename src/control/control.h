/* SPDX-License-Identifier: Apache-2.0 */
/* control.h - CSI Controller for a cluster: orders volumes from nodes by CisternVolumes, and removes what they
 * leave behind. home: opened, stopped and freed by one thread (main); the handlers run on the threads of rpc.
 * Every replica serves CSI and keeps no state that other replicas lack. Only the holder of the lease cleans up.
 * Code: control.c, and sweep.c for the cleaning up. */
#pragma once

#include "csi/service.h"
#include "kube/event.h"
#include "kube/informer.h"
#include "kube/lease.h"

struct control;

/* The numbers of the indexes that the informer of CisternVolumes must have. */
enum control_index { CONTROL_BY_ID, CONTROL_BY_NODE }; /* spec.volumeID, spec.nodeName */

/* All borrowed: they outlive the struct control. */
struct control_options {
    struct kube *kube;
    const struct kube_lease *lease; /* NULL: we always lead */
    struct kube_events *events;     /* NULL: no events */
    struct kube_informer *volumes;  /* CisternVolumes */
    struct kube_informer *pvs;      /* PersistentVolumes */
    struct kube_informer *pools;    /* CisternPools */
    struct kube_informer *nodes;    /* Nodes; only their names are used */
    struct str namespace;           /* the controller's namespace, which has the prime claims */
    uint64_t node_gone_grace_ns;    /* 0: 10 min */
    uint64_t tombstone_ns;          /* how long the order of a released volume is kept if its node is gone; 0: 7 days */
    uint64_t sweep_ns; /* interval of the search for volumes without claim and PersistentVolume; 0: 10 min */
};

must_check int control_open(const struct control_options *o, struct control **ret, struct err *err);

/* Starts no more work and waits for running work. Call it after kube_stop(), on another thread than the loop,
 * which must still run. NULL is fine. */
void control_stop(struct control *c);
/* Call it after control_stop(), after the server of its handlers has stopped, and when no informer calls back any
 * more. NULL is fine. */
void control_free(struct control *own_c);

struct csi_service *control_service(struct control *c); /* CSI for rpc_server_start() */

/* For the informers' callbacks, on the loop. NULL is fine. */
void control_volume_changed(struct control *c, struct str name);
void control_pv_changed(struct control *c, const json *pv);
void control_node_changed(struct control *c, struct str name);
/* Called when this process becomes the leader: every object is checked. Any thread. */
void control_lead(struct control *c);
