/* SPDX-License-Identifier: Apache-2.0 */
#include "service.h"
#include "driver.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"

#define METHOD(service, name, handler, request_type, reply_type)                                                       \
    {                                                                                                                  \
        "/csi.v1." service "/" name, &csi__v1__##request_type##__descriptor, &csi__v1__##reply_type##__descriptor,     \
            handler                                                                                                    \
    }
#define IDENTITY(name, type, handler) METHOD("Identity", name, handler, type##_request, type##_response)
#define CONTROLLER(name, type, handler) METHOD("Controller", name, handler, type##_request, type##_response)
#define NODE(name, type, handler) METHOD("Node", name, handler, type##_request, type##_response)

enum { NODE_METHODS = 13 }; /* Identity and Node, which come first */

/* What is not here is answered UNIMPLEMENTED: attaching, snapshots, groups. */
static const struct rpc_method methods[] = {
    IDENTITY("GetPluginInfo", get_plugin_info, identity_info),
    IDENTITY("GetPluginCapabilities", get_plugin_capabilities, identity_capabilities),
    IDENTITY("Probe", probe, identity_probe),
    NODE("NodeStageVolume", node_stage_volume, node_stage),
    NODE("NodeUnstageVolume", node_unstage_volume, node_unstage),
    NODE("NodePublishVolume", node_publish_volume, node_publish),
    NODE("NodeUnpublishVolume", node_unpublish_volume, node_unpublish),
    NODE("NodeGetVolumeStats", node_get_volume_stats, node_stats),
    NODE("NodeGetVolumeHealth", node_get_volume_health, node_health),
    NODE("NodeGetStorageHealth", node_get_storage_health, node_storage_health),
    NODE("NodeExpandVolume", node_expand_volume, node_expand),
    NODE("NodeGetCapabilities", node_get_capabilities, node_capabilities),
    NODE("NodeGetInfo", node_get_info, node_info),
    /* NODE_METHODS end here. */
    CONTROLLER("CreateVolume", create_volume, controller_create),
    CONTROLLER("DeleteVolume", delete_volume, controller_delete),
    CONTROLLER("ValidateVolumeCapabilities", validate_volume_capabilities, controller_validate),
    CONTROLLER("ListVolumes", list_volumes, controller_list),
    CONTROLLER("ControllerListVolumeHealth", controller_list_volume_health, controller_list_health),
    CONTROLLER("ControllerGetVolumeHealth", controller_get_volume_health, controller_get_health),
    CONTROLLER("GetCapacity", get_capacity, controller_capacity),
    CONTROLLER("ControllerGetCapabilities", controller_get_capabilities, controller_capabilities),
    CONTROLLER("ControllerExpandVolume", controller_expand_volume, controller_expand),
    CONTROLLER("ControllerGetVolume", controller_get_volume, controller_get),
    CONTROLLER("ControllerModifyVolume", controller_modify_volume, controller_modify),
};

const struct rpc_method *driver_methods(const struct driver *d, size_t *ret_count)
{
    *ret_count = d->is_node ? NODE_METHODS : countof(methods);
    return methods;
}

void driver_answered(void *ctx, const char *path, const struct err *err, uint64_t took_ns)
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

/* ---- identity ---------------------------------------------------------------------------------------------------- */

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

HANDLER(identity_capabilities)
{
    (void)request, (void)err;
    Csi__V1__GetPluginCapabilitiesResponse *r = (Csi__V1__GetPluginCapabilitiesResponse *)reply;
    const struct driver *d = ctx;
    r->capabilities = rpc_alloc(call, 3, sizeof *r->capabilities);
    r->capabilities[r->n_capabilities++] =
        service(call, CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__VOLUME_ACCESSIBILITY_CONSTRAINTS);
    r->capabilities[r->n_capabilities++] = expansion(call);
    if (!d->is_node)
        r->capabilities[r->n_capabilities++] =
            service(call, CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__CONTROLLER_SERVICE);
    return 0;
}

HANDLER(identity_probe)
{
    (void)ctx, (void)request, (void)err;
    Csi__V1__ProbeResponse *r = (Csi__V1__ProbeResponse *)reply;
    r->ready = rpc_alloc(call, 1, sizeof *r->ready);
    google__protobuf__bool_value__init(r->ready);
    r->ready->value = 1;
    return 0;
}
