/* SPDX-License-Identifier: Apache-2.0 */
/* request.h - what the CSI contract asks of every controller alike, be its volumes on this machine or on others: fields
 * that must be there, maps, the words of CreateVolume. Pure; memory is the call's. */
#pragma once

#include "rpc/server.h"
#include "volume/spec.h"
#include <proto/csi.pb-c.h>

#define HANDLER(name)                                                                                                  \
    int name(void *ctx, struct rpc_call *call, const ProtobufCMessage *request, ProtobufCMessage *reply,               \
             struct err *err)

#define METHOD(service, name, handler, request_type, reply_type, is_prompt)                                            \
    {                                                                                                                  \
        "/csi.v1." service "/" name, &csi__v1__##request_type##__descriptor, &csi__v1__##reply_type##__descriptor,     \
            handler, is_prompt                                                                                         \
    }
#define IDENTITY(name, type, handler) METHOD("Identity", name, handler, type##_request, type##_response, true)
#define CONTROLLER(name, type, handler) METHOD("Controller", name, handler, type##_request, type##_response, false)
#define NODE(name, type, handler) METHOD("Node", name, handler, type##_request, type##_response, false)

/* ERR_INVALID "<field> is missing" for an empty one. */
must_check int need_field(const char *value, const char *field, struct err *err);

/* Each map of the contract has an entry type of its own; `pairs_of(call, request, parameters)` makes them one. */
struct pair {
    const char *key, *value;
};

#define pairs_of(call, message, field)                                                                                 \
    ({                                                                                                                 \
        struct pair *pairs_ = rpc_alloc((call), (message)->n_##field, sizeof *pairs_);                                 \
        for (size_t i_ = 0; i_ < (message)->n_##field; i_++)                                                           \
            pairs_[i_] = (struct pair){(message)->field[i_]->key, (message)->field[i_]->value};                        \
        pairs_;                                                                                                        \
    })

/* spec_set, spec_set_parameter or spec_modify with each pair, up to the first that fails. */
must_check int pairs_apply(struct spec *s, const struct pair *pairs, size_t count,
                           int (*set)(struct spec *s, struct str key, struct str value, struct err *err),
                           struct err *err);

/* Name, capabilities, no content source: what of CreateVolume needs no look at its parameters. */
must_check int create_check(const Csi__V1__CreateVolumeRequest *q, struct err *err);

/* The node that a topology names; NULL if it names none, so that every node is of it. */
const char *topology_node(const Csi__V1__Topology *t);

/* ---- replies ----------------------------------------------------------------------------------------------------- */

/* The volume as the contract shows it, on its node. */
Csi__V1__Volume *volume_on_node(struct rpc_call *call, const char *id, uint64_t capacity_bytes, const char *node);
Csi__V1__Topology *topology_of_node(struct rpc_call *call, const char *node);
Google__Protobuf__Int64Value *int64_value(struct rpc_call *call, uint64_t n);

/* Capabilities and words of ValidateVolumeCapabilities: confirmed, or a message why not. */
void validate_reply(struct rpc_call *call, const Csi__V1__ValidateVolumeCapabilitiesRequest *q,
                    int (*set)(struct spec *s, struct str key, struct str value, struct err *err),
                    Csi__V1__ValidateVolumeCapabilitiesResponse *p);

/* What of available and largest (bytes) a class of these words can have: GetCapacity's answer. */
void capacity_reply(struct rpc_call *call, const struct spec *class, bool fits, uint64_t available, uint64_t largest,
                    Csi__V1__GetCapacityResponse *p);

/* ---- handlers that need nothing ---------------------------------------------------------------------------------- */

HANDLER(identity_info);
HANDLER(identity_ready); /* Probe, of a driver that is ready once it answers */
HANDLER(controller_capabilities);

/* GetPluginCapabilities. */
void identity_reply(struct rpc_call *call, bool has_controller, Csi__V1__GetPluginCapabilitiesResponse *p);

/* rpc_options.answered: a line for each call that failed, and at level debug for each other. */
void call_answered(void *ctx, const char *path, const struct err *err, uint64_t took_ns);
