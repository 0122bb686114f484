/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - The state of the controller. Private to this room. home: frozen once open; the parts have locks of
 * their own. */
#pragma once

#include "api/pool.h"
#include "api/volume.h"
#include "control/control.h"
#include "csi/service.h"
#include "kube/queue.h"

struct control {
    struct csi_service service;
    struct control_options o;
    char *namespace;          /* owned; o.namespace is a view of it */
    struct kube_queue *queue; /* owned; keys: names of CisternVolumes, and one for the sweep */
};

/* ---- objects.c: the API server's side ---------------------------------------------------------------------------- */

/* ERR_AGAIN (CIS_CONTROLLER_STARTING) until the informers of volumes, pools and nodes have synced. Before, an
 * object that is not copied yet would count as missing, and pods would be kept from nodes with free space. */
must_check int informers_have_synced(const struct control *c, struct err *err);

/* Reads the informer, then the server, because the informer may lag. ERR_NOT_FOUND (CIS_VOLUME_NOT_FOUND). */
must_check int volume_find(struct control *c, const struct volume_id *id, struct api_volume **ret, struct err *err);
struct csi_volume csi_volume_of(struct rpc_call *call, const struct api_volume *v);
/* Reads the object of this name from the server. ERR_NOT_FOUND. */
must_check int volume_get(struct control *c, const char *name, struct api_volume **ret, struct err *err);
/* Reads any object. ERR_NOT_FOUND if it is missing; any other failure is ERR_AGAIN, because the caller repeats the
 * call. */
must_check int object_get(struct control *c, const struct kube_resource *resource, struct str ns, struct str name,
                          json **ret, struct err *err);
/* The pool from the informer; NULL in *ret if it is missing, or if its Node is gone. */
must_check int control_cached_pool(struct control *c, const char *node, const char *pool, struct api_pool **ret,
                                   struct err *err);

/* Wakes the node to read changed volumes of its pool. Success if the pool is gone. */
must_check int control_wake_pool(struct control *c, const char *node, const char *pool, struct err *err);

/* Applies a merge patch to the spec, then wakes the node. Consumes `own_patch`. */
must_check int volume_patch(struct control *c, const struct api_volume *v, json *own_patch, struct err *err);

/* Removes the finalizer and the object while `is_over` holds: the node has confirmed that nothing of the volume is
 * left. ERR_PENDING if it no longer holds. Success if the object is gone. */
must_check int volume_delete_order(struct control *c, const struct api_volume *v,
                                   bool (*is_over)(const struct api_volume *v), struct err *err);

/* Waits until `is` holds for the volume: for `wait_ns`, until shortly before the call's deadline, and at most a
 * minute. *ret is NULL if the volume is deleted. ERR_TIMEOUT. */
must_check int volume_wait(struct control *c, struct rpc_call *call, const char *name, uint64_t wait_ns,
                           bool (*is)(void *ctx, const json *object), void *ctx, struct api_volume **ret,
                           struct err *err);

/* A warning on the volume's PersistentVolume and on its claim. Best effort. */
void volume_event(struct control *c, const struct api_volume *v, const char *reason, const struct err *what);

/* ---- CSI, by file ------------------------------------------------------------------------------------------------ */

int control_create(void *ctx, struct rpc_call *call, const struct csi_create *q, struct csi_volume *ret,
                   struct err *err);                                                               /* create.c */
int control_delete(void *ctx, struct rpc_call *call, const struct volume_id *id, struct err *err); /* delete.c */
int control_expand(void *ctx, const struct volume_id *id, const Csi__V1__CapacityRange *range, uint64_t *ret_bytes,
                   bool *ret_on_node, struct err *err); /* change.c */
int control_modify(void *ctx, const struct volume_id *id, struct csi_pairs changes, struct err *err);
int control_get(void *ctx, struct rpc_call *call, const struct volume_id *id, struct csi_volume *ret,
                struct health *ret_health, struct err *err); /* query.c */
int control_list(void *ctx, struct csi_page *page, struct err *err);
int control_capacity(void *ctx, const struct spec *class, const struct csi_place *where, struct csi_capacity *ret,
                     struct err *err);

/* ---- the leader's work: sweep.c ---------------------------------------------------------------------------------- */

int sweep_reconcile(void *ctx, struct str key, uint64_t *again_ns, struct err *err);
