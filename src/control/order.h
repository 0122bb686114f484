/* SPDX-License-Identifier: Apache-2.0 */
/* order.h - a CreateVolume as an order to a node. Pure. Private to this folder. */
#pragma once

#include "api/pool.h"
#include "api/volume.h"
#include "contract/request.h"

/* What a call asks for, as far as its own words say it. */
struct wish {
    struct api_volume *volume; /* owned: name, parameters, capacity; no node, no claim and no source yet */
    struct spec *spec;         /* owned: its parameters, checked */
    uint64_t limit_bytes;      /* 0: none */
    const char *claim_namespace, *claim_name; /* of the claim that was asked for, of the call; NULL: nobody said */
};

/* Checks everything that needs no look at other objects: ERR_INVALID, ERR_RANGE. */
must_check int wish_read(struct rpc_call *call, const Csi__V1__CreateVolumeRequest *q, struct wish *ret,
                         struct err *err);
void wish_done(struct wish *w); /* may run twice */

/* The name of the CisternVolume of a CSI name: the same where it is a DNS name, else one made of its hash. */
char *order_name(struct str csi_name); /* the caller frees */

/* Is `have`, which was ordered under the same name, what is asked for now? ERR_EXISTS (CIS2006) says what differs. */
must_check int order_matches(const struct api_volume *have, const struct wish *w, struct err *err);

/* ---- where to ---------------------------------------------------------------------------------------------------- */

/* What speaks against a pool for `bytes`: ERR_NO_SPACE (CIS2028), with both figures; 0 if it may be asked. */
must_check int pool_takes(const struct api_pool *p, uint64_t bytes, struct err *err);

/* ---- how it stands ----------------------------------------------------------------------------------------------- */

enum order_state {
    ORDER_OPEN,    /* the node has not said yet */
    ORDER_MADE,    /* the volume is there */
    ORDER_REFUSED, /* the node has made nothing, and will not: the order can be withdrawn */
    ORDER_LEAVING, /* it is to be released, or was deleted */
};
enum order_state order_state_of(const struct api_volume *v);
/* The node's refusal, in the alphabet of the house: ERR_NO_SPACE, ERR_RANGE, ERR_INVALID, ERR_EXISTS, ERR_PENDING. */
must_check int order_refusal(const struct api_volume *v, struct err *err);
