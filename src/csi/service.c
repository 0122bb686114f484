/* SPDX-License-Identifier: Apache-2.0 */
#include "service.h"
#include "driver.h"

enum { NODE_METHODS = 13 }; /* Identity and Node, which come first */

/* What is not here is answered UNIMPLEMENTED: attaching, snapshots, groups. */
static const struct rpc_method methods[] = {
    IDENTITY("GetPluginInfo", get_plugin_info, identity_info),
    IDENTITY("GetPluginCapabilities", get_plugin_capabilities, identity_capabilities),
    IDENTITY("Probe", probe, identity_ready),
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

HANDLER(identity_capabilities)
{
    const struct driver *d = ctx;
    (void)request, (void)err;
    identity_reply(call, !d->is_node, (Csi__V1__GetPluginCapabilitiesResponse *)reply);
    return 0;
}
