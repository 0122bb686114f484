/* SPDX-License-Identifier: Apache-2.0 */
/* request.h - Decodes requests: fields that must be set, maps, topologies. Memory is the call's. Private. */
#pragma once

#include "csi/service.h"

/* Begins the handler `name` of the method whose messages are <type>Request and <type>Response: `s` is the service, `q`
 * the request, `p` the reply. */
// NOLINTBEGIN(bugprone-macro-parentheses): types take none
#define HANDLER(name, type)                                                                                            \
    static int name##_typed(const struct csi_service *s, struct rpc_call *call, const Csi__V1__##type##Request *q,     \
                            Csi__V1__##type##Response *p, struct err *err);                                            \
    static int name(void *ctx, struct rpc_call *call, const ProtobufCMessage *request, ProtobufCMessage *reply,        \
                    struct err *err)                                                                                   \
    {                                                                                                                  \
        return name##_typed(ctx, call, (const Csi__V1__##type##Request *)request, (Csi__V1__##type##Response *)reply,  \
                            err);                                                                                      \
    }                                                                                                                  \
    static int name##_typed(unused const struct csi_service *s, unused struct rpc_call *call,                          \
                            unused const Csi__V1__##type##Request *q, unused Csi__V1__##type##Response *p,             \
                            unused struct err *err)
#define unused __attribute__((unused))
// NOLINTEND(bugprone-macro-parentheses)

/* A row of the method table of a service; `is_prompt` as in struct rpc_method. */
#define METHOD(service, name, type, handler, is_prompt)                                                                \
    {                                                                                                                  \
        "/csi.v1." service "/" name, &csi__v1__##type##_request__descriptor, &csi__v1__##type##_response__descriptor,  \
            handler, is_prompt                                                                                         \
    }
enum { CONTROLLER_METHODS = 11, NODE_METHODS = 10 };
extern const struct rpc_method controller_methods[CONTROLLER_METHODS]; /* controller.c */
extern const struct rpc_method node_methods[NODE_METHODS];             /* node.c */

/* ERR_INVALID "<field> is missing" for an empty one. */
must_check int need_field(const char *value, const char *field, struct err *err);

/* A volume_id. ERR_INVALID if it is missing; ERR_NOT_FOUND if it is not an id of Cistern. */
must_check int need_id(const char *text, struct volume_id *ret, struct err *err);

/* Each map of CSI has its own entry type; `pairs_of(call, request, parameters)` converts it. */
#define pairs_of(call, message, field)                                                                                 \
    ({                                                                                                                 \
        struct csi_pair *pairs_ = rpc_alloc((call), (message)->n_##field, sizeof *pairs_);                             \
        for (size_t i_ = 0; i_ < (message)->n_##field; i_++)                                                           \
            pairs_[i_] = (struct csi_pair){(message)->field[i_]->key, (message)->field[i_]->value};                    \
        (struct csi_pairs){pairs_, (message)->n_##field};                                                              \
    })

/* spec_set, spec_set_parameter or spec_modify with each pair, up to the first that fails. */
must_check int pairs_apply(struct spec *s, struct csi_pairs pairs,
                           int (*set)(struct spec *s, struct str key, struct str value, struct err *err),
                           struct err *err);

/* Checks the fields of CreateVolume that are not parameters: name, capabilities, content source. */
must_check int create_check(const Csi__V1__CreateVolumeRequest *q, struct err *err);

struct csi_place topology_place(const Csi__V1__Topology *t);

Csi__V1__Topology *topology_of_node(struct rpc_call *call, const char *node);
