/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/caps.h"
#include "contract/request.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"
#include "volume/disk.h"

/* ---- volumes ----------------------------------------------------------------------------------------------------- */

Csi__V1__Topology *topology_of_node(struct rpc_call *call, const char *node)
{
    Csi__V1__Topology *t = rpc_alloc(call, 1, sizeof *t);
    Csi__V1__Topology__SegmentsEntry *e = rpc_alloc(call, 1, sizeof *e);
    csi__v1__topology__init(t);
    csi__v1__topology__segments_entry__init(e);
    e->key = rpc_dup(call, STR(NAME_TOPOLOGY_KEY));
    e->value = rpc_dup(call, str_of(node));
    t->segments = rpc_alloc(call, 1, sizeof *t->segments);
    t->segments[0] = e;
    t->n_segments = 1;
    return t;
}

Csi__V1__Volume *volume_on_node(struct rpc_call *call, const char *id, uint64_t capacity_bytes, const char *node)
{
    Csi__V1__Volume *v = rpc_alloc(call, 1, sizeof *v);
    csi__v1__volume__init(v);
    v->volume_id = rpc_dup(call, str_of(id));
    v->capacity_bytes = (int64_t)capacity_bytes;
    v->accessible_topology = rpc_alloc(call, 1, sizeof *v->accessible_topology);
    v->accessible_topology[0] = topology_of_node(call, node);
    v->n_accessible_topology = 1;
    return v;
}

static void confirm(struct rpc_call *call, const Csi__V1__ValidateVolumeCapabilitiesRequest *q,
                    Csi__V1__ValidateVolumeCapabilitiesResponse *p)
{
    typedef Csi__V1__ValidateVolumeCapabilitiesResponse__Confirmed__VolumeContextEntry context_entry;
    Csi__V1__ValidateVolumeCapabilitiesResponse__Confirmed *c = rpc_alloc(call, 1, sizeof *c);
    csi__v1__validate_volume_capabilities_response__confirmed__init(c);
    c->n_volume_capabilities = q->n_volume_capabilities;
    c->volume_capabilities = q->volume_capabilities; /* lives as long as the call */
    c->volume_context = rpc_alloc(call, q->n_volume_context, sizeof *c->volume_context);
    c->n_volume_context = q->n_volume_context;
    for (size_t i = 0; i < q->n_volume_context; i++) {
        context_entry *e = rpc_alloc(call, 1, sizeof *e);
        csi__v1__validate_volume_capabilities_response__confirmed__volume_context_entry__init(e);
        e->key = q->volume_context[i]->key;
        e->value = q->volume_context[i]->value;
        c->volume_context[i] = e;
    }
    p->confirmed = c;
}

void validate_reply(struct rpc_call *call, const Csi__V1__ValidateVolumeCapabilitiesRequest *q,
                    int (*set)(struct spec *s, struct str key, struct str value, struct err *err),
                    Csi__V1__ValidateVolumeCapabilitiesResponse *p)
{
    struct err why;
    auto_spec trial = spec_new();
    int r = caps_check_all(q->volume_capabilities, q->n_volume_capabilities, &why);
    if (r == 0)
        r = pairs_apply(trial, pairs_of(call, q, parameters), q->n_parameters, set, &why);
    if (r == 0)
        r = pairs_apply(trial, pairs_of(call, q, mutable_parameters), q->n_mutable_parameters, spec_modify, &why);
    if (r < 0)
        p->message = rpc_dup(call, str_of(why.text));
    else
        confirm(call, q, p);
}

/* ---- capacity ---------------------------------------------------------------------------------------------------- */

Google__Protobuf__Int64Value *int64_value(struct rpc_call *call, uint64_t n)
{
    Google__Protobuf__Int64Value *v = rpc_alloc(call, 1, sizeof *v);
    google__protobuf__int64_value__init(v);
    v->value = (int64_t)min_u64(n, INT64_MAX);
    return v;
}

void capacity_reply(struct rpc_call *call, const struct spec *class, bool fits, uint64_t available, uint64_t largest,
                    Csi__V1__GetCapacityResponse *p)
{
    uint64_t least = max_u64(class->params.min_volume_bytes, DISK_BYTES_MIN);
    uint64_t most = class->params.max_volume_bytes ? min_u64(largest, class->params.max_volume_bytes) : largest;
    fits = fits && most >= least;
    p->available_capacity = fits ? (int64_t)min_u64(available, INT64_MAX) : 0;
    p->maximum_volume_size = int64_value(call, fits ? most : 0);
    p->minimum_volume_size = int64_value(call, least);
}

/* ---- identity and capabilities ----------------------------------------------------------------------------------- */

HANDLER(identity_info)
{
    (void)ctx, (void)request, (void)err;
    Csi__V1__GetPluginInfoResponse *r = (Csi__V1__GetPluginInfoResponse *)reply;
    r->name = rpc_dup(call, STR(NAME_DRIVER));
    r->vendor_version = rpc_dup(call, STR(CISTERN_VERSION));
    return 0;
}

static Csi__V1__PluginCapability *capability(struct rpc_call *call)
{
    Csi__V1__PluginCapability *c = rpc_alloc(call, 1, sizeof *c);
    csi__v1__plugin_capability__init(c);
    return c;
}

static Csi__V1__PluginCapability *service(struct rpc_call *call, Csi__V1__PluginCapability__Service__Type type)
{
    Csi__V1__PluginCapability *c = capability(call);
    c->type_case = CSI__V1__PLUGIN_CAPABILITY__TYPE_SERVICE;
    c->service = rpc_alloc(call, 1, sizeof *c->service);
    csi__v1__plugin_capability__service__init(c->service);
    c->service->type = type;
    return c;
}

static Csi__V1__PluginCapability *expansion(struct rpc_call *call)
{
    Csi__V1__PluginCapability *c = capability(call);
    c->type_case = CSI__V1__PLUGIN_CAPABILITY__TYPE_VOLUME_EXPANSION;
    c->volume_expansion = rpc_alloc(call, 1, sizeof *c->volume_expansion);
    csi__v1__plugin_capability__volume_expansion__init(c->volume_expansion);
    c->volume_expansion->type = CSI__V1__PLUGIN_CAPABILITY__VOLUME_EXPANSION__TYPE__ONLINE;
    return c;
}

void identity_reply(struct rpc_call *call, bool has_controller, Csi__V1__GetPluginCapabilitiesResponse *p)
{
    p->capabilities = rpc_alloc(call, 3, sizeof *p->capabilities);
    p->capabilities[p->n_capabilities++] =
        service(call, CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__VOLUME_ACCESSIBILITY_CONSTRAINTS);
    p->capabilities[p->n_capabilities++] = expansion(call);
    if (has_controller)
        p->capabilities[p->n_capabilities++] =
            service(call, CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__CONTROLLER_SERVICE);
}

HANDLER(identity_ready)
{
    (void)ctx, (void)request, (void)err;
    Csi__V1__ProbeResponse *r = (Csi__V1__ProbeResponse *)reply;
    r->ready = rpc_alloc(call, 1, sizeof *r->ready);
    google__protobuf__bool_value__init(r->ready);
    r->ready->value = 1;
    return 0;
}

HANDLER(controller_capabilities)
{
#define CAN(type) CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__##type
    static const Csi__V1__ControllerServiceCapability__RPC__Type types[] = {
        CAN(CREATE_DELETE_VOLUME), CAN(LIST_VOLUMES),
        CAN(GET_CAPACITY),         CAN(EXPAND_VOLUME),
        CAN(VOLUME_CONDITION),     CAN(GET_VOLUME),
        CAN(MODIFY_VOLUME),        CAN(GET_VOLUME_HEALTH),
        CAN(LIST_VOLUME_HEALTH),   CAN(SINGLE_NODE_MULTI_WRITER),
    };
#undef CAN
    (void)ctx, (void)request, (void)err;
    Csi__V1__ControllerGetCapabilitiesResponse *p = (Csi__V1__ControllerGetCapabilitiesResponse *)reply;
    p->n_capabilities = countof(types);
    p->capabilities = rpc_alloc(call, countof(types), sizeof *p->capabilities);
    for (size_t i = 0; i < countof(types); i++) {
        Csi__V1__ControllerServiceCapability *c = rpc_alloc(call, 1, sizeof *c);
        csi__v1__controller_service_capability__init(c);
        c->type_case = CSI__V1__CONTROLLER_SERVICE_CAPABILITY__TYPE_RPC;
        c->rpc = rpc_alloc(call, 1, sizeof *c->rpc);
        csi__v1__controller_service_capability__rpc__init(c->rpc);
        c->rpc->type = types[i];
        p->capabilities[i] = c;
    }
    return 0;
}

void call_answered(void *ctx, const char *path, const struct err *err, uint64_t took_ns)
{
    (void)ctx;
    char took[TIME_TEXT_MAX];
    duration_text(took_ns, took);
    if (!err)
        log_event(LOG_DEBUG, "call answered", "method", path, "took", took, NULL);
    else
        log_err(err->code == ERR_INTERNAL || err->code == ERR_IO ? LOG_ERROR : LOG_INFO, "call refused", err, "method",
                path, "took", took, NULL);
}
