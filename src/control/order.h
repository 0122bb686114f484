/* SPDX-License-Identifier: Apache-2.0 */
/* order.h - Makes an order to a node from a CreateVolume request. Pure. Private. */
#pragma once

#include "api/pool.h"
#include "api/volume.h"
#include "csi/service.h"

/* A CreateVolume request while it becomes an order. */
struct order_request {
    const struct csi_create *create; /* borrowed */
    struct api_volume *volume;       /* owned: name, parameters, capacity; no node, claim or source yet */
};
must_check int order_request_read(const struct csi_create *q, struct order_request *ret, struct err *err);
void order_request_done(struct order_request *o); /* may run twice */

/* The claim that the provisioner names; NULL: none. */
#define ORDER_CLAIM_NAMESPACE "csi.storage.k8s.io/pvc/namespace"
#define ORDER_CLAIM_NAME "csi.storage.k8s.io/pvc/name"

/* The name of the CisternVolume for a CSI name: the CSI name if it is a DNS name, else a name made of its hash. */
char *order_name(struct str csi_name); /* the caller frees */

/* Does the existing order `have` of the same name equal the request? If not, ERR_EXISTS (CIS_VOLUME_EXISTS) names
 * the difference. */
must_check int order_matches(const struct api_volume *have, const struct order_request *o, struct err *err);

/* ---- where to ---------------------------------------------------------------------------------------------------- */

/* ERR_NO_SPACE (CIS_POOL_FULL) if the pool has no room for `bytes` or is unhealthy. */
must_check int order_check_pool(const struct api_pool *p, uint64_t bytes, struct err *err);

/* ---- state of an order ------------------------------------------------------------------------------------------- */

enum order_state {
    ORDER_OPEN,    /* the node has not said yet */
    ORDER_MADE,    /* the volume is there */
    ORDER_REFUSED, /* the node has not created the volume and will not: the order can be withdrawn */
    ORDER_LEAVING, /* its release was requested, or the object was deleted */
};
enum order_state order_state_of(const struct api_volume *v);
/* The node's refusal as an error: ERR_NO_SPACE, ERR_RANGE, ERR_INVALID, ERR_EXISTS or ERR_PENDING. */
must_check int order_refusal(const struct api_volume *v, struct err *err);
