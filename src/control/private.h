/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - what the handlers and the clean-up share. home: frozen once open; the parts have locks of their own. */
#pragma once

#include "api/pool.h"
#include "api/volume.h"
#include "contract/request.h"
#include "control/control.h"
#include "kube/queue.h"
#include <pthread.h>

struct control {
    struct control_options o;
    char *namespace;          /* owned; o.namespace is a view of it */
    struct kube_queue *queue; /* owned: names of CisternVolumes, and the sweep */
    pthread_mutex_t lock;     /* guards what follows */
    pthread_cond_t idle;
    unsigned busy;
    bool stopping;
};

/* ---- objects.c: the API server's side ---------------------------------------------------------------------------- */

/* ERR_AGAIN (CIS5111) until the copies of volumes, pools and nodes are whole: what is not in them yet looks as if it
 * were not there, and pods would be sent away from nodes that have room. */
must_check int copies_are_whole(const struct control *c, struct err *err);

/* By a call's volume_id (ERR_INVALID: it says none): from the informer, and where that knows none, from the server: who
 * deletes must not take a copy that lags for the truth. ERR_NOT_FOUND (CIS2110). */
must_check int volume_find(struct control *c, const char *id, struct api_volume **ret, struct err *err);
/* By the name of the object; as the server has it now. ERR_NOT_FOUND. */
must_check int volume_get(struct control *c, const char *name, struct api_volume **ret, struct err *err);
/* Any object. ERR_NOT_FOUND as it is, what else fails is ERR_AGAIN: the caller comes back. */
must_check int object_get(struct control *c, const struct kube_resource *resource, struct str ns, struct str name,
                          json **ret, struct err *err);
/* The pool from the informer; NULL in *ret if there is none, or if its Node is gone. */
must_check int pool_get(struct control *c, const char *node, const char *pool, struct api_pool **ret, struct err *err);

/* Tells the node that volumes of its pool changed. A pool that is gone is success. */
must_check int pool_bump(struct control *c, const char *node, const char *pool, struct err *err);

/* A merge patch of the spec, and then the bump. Consumes `own_patch`. */
must_check int volume_patch(struct control *c, const struct api_volume *v, json *own_patch, struct err *err);

/* Takes finalizer and object away, for as long as `is_over` is true of it (as it is of `v`): the node has said that it
 * has nothing of it. ERR_PENDING if that is not so any more. Gone already is success. */
must_check int volume_withdraw(struct control *c, const struct api_volume *v,
                               bool (*is_over)(const struct api_volume *v), struct err *err);

/* Waits until `is` is true of the volume, for `wait_ns` at most, and until the time of the call is nearly up (a minute
 * where it has more). *ret is NULL if it is gone; ERR_TIMEOUT. */
must_check int volume_wait(struct control *c, struct rpc_call *call, const char *name, uint64_t wait_ns,
                           bool (*is)(void *ctx, const json *object), void *ctx, struct api_volume **ret,
                           struct err *err);

/* A warning on the volume's PersistentVolume and on its claim. Best effort. */
void volume_tell(struct control *c, const struct api_volume *v, const char *reason, const struct err *what);

/* ---- handlers, by file ------------------------------------------------------------------------------------------- */

HANDLER(control_probe); /* service.c */
HANDLER(control_identity);
HANDLER(control_create); /* create.c */
HANDLER(control_delete); /* delete.c */
HANDLER(control_expand); /* change.c */
HANDLER(control_modify);
HANDLER(control_validate);
HANDLER(control_list); /* list.c */
HANDLER(control_get);
HANDLER(control_list_health);
HANDLER(control_get_health);
HANDLER(control_capacity); /* capacity.c */

/* ---- the leader's work: sweep.c ---------------------------------------------------------------------------------- */

int sweep_reconcile(void *ctx, struct str key, uint64_t *again_ns, struct err *err);
