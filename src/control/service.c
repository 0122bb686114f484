/* SPDX-License-Identifier: Apache-2.0 */
#include "control/control.h"
#include "private.h"

/* What is not here is answered UNIMPLEMENTED: attaching, snapshots, groups, and a node's calls. */
static const struct rpc_method methods[] = {
    IDENTITY("GetPluginInfo", get_plugin_info, identity_info),
    IDENTITY("GetPluginCapabilities", get_plugin_capabilities, control_identity),
    IDENTITY("Probe", probe, control_probe),
    CONTROLLER("CreateVolume", create_volume, control_create),
    CONTROLLER("DeleteVolume", delete_volume, control_delete),
    CONTROLLER("ValidateVolumeCapabilities", validate_volume_capabilities, control_validate),
    CONTROLLER("ListVolumes", list_volumes, control_list),
    CONTROLLER("ControllerListVolumeHealth", controller_list_volume_health, control_list_health),
    CONTROLLER("ControllerGetVolumeHealth", controller_get_volume_health, control_get_health),
    CONTROLLER("GetCapacity", get_capacity, control_capacity),
    CONTROLLER("ControllerGetCapabilities", controller_get_capabilities, controller_capabilities),
    CONTROLLER("ControllerExpandVolume", controller_expand_volume, control_expand),
    CONTROLLER("ControllerGetVolume", controller_get_volume, control_get),
    CONTROLLER("ControllerModifyVolume", controller_modify_volume, control_modify),
};

const struct rpc_method *control_methods(size_t *ret_count)
{
    *ret_count = countof(methods);
    return methods;
}

HANDLER(control_identity)
{
    (void)ctx, (void)request, (void)err;
    identity_reply(call, true, (Csi__V1__GetPluginCapabilitiesResponse *)reply);
    return 0;
}

HANDLER(control_probe)
{
    (void)request, (void)err;
    struct err not_yet;
    Csi__V1__ProbeResponse *p = (Csi__V1__ProbeResponse *)reply;
    p->ready = rpc_alloc(call, 1, sizeof *p->ready);
    google__protobuf__bool_value__init(p->ready);
    p->ready->value = copies_are_whole(ctx, &not_yet) == 0;
    return 0;
}
