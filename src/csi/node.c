/* SPDX-License-Identifier: Apache-2.0 */
#include "csi/caps.h"
#include "request.h"
#include "util/names.h"

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

/* ---- mounts ------------------------------------------------------------------------------------------------------ */

static int read_capability(const Csi__V1__VolumeCapability *c, struct csi_mount *ret, struct err *err)
{
    if (!c)
        return err_set(err, ERR_INVALID, "volume_capability is missing");
    int r = caps_check(c, err);
    if (r == 0)
        r = caps_group(c, &ret->has_group, &ret->group, err);
    if (r == 0)
        r = caps_context(c, &ret->context, err);
    if (r == 0) {
        ret->read_only |= caps_is_read_only(c);
        ret->is_shared = caps_is_shared(c);
    }
    return r;
}

static int need_absolute(const char *path, const char *field, struct err *err)
{
    int r = need_field(path, field, err);
    return r < 0 || path[0] == '/' ? r : err_set(err, ERR_INVALID, "%s '%s' is not absolute", field, path);
}

HANDLER(node_stage, NodeStageVolume)
{
    struct csi_mount m = {.staging_path = q->staging_target_path};
    struct volume_id id;
    int r = need_absolute(q->staging_target_path, "staging_target_path", err);
    if (r == 0)
        r = read_capability(q->volume_capability, &m, err);
    if (r == 0)
        r = need_id(q->volume_id, &id, err);
    return r < 0 ? r : s->node->stage(s->ctx, &id, &m, err);
}

HANDLER(node_publish, NodePublishVolume)
{
    struct csi_mount m = {
        .staging_path = q->staging_target_path, .target_path = q->target_path, .read_only = q->readonly};
    struct volume_id id;
    int r = need_absolute(q->target_path, "target_path", err);
    if (r == 0)
        r = read_capability(q->volume_capability, &m, err);
    if (r == 0)
        r = need_id(q->volume_id, &id, err);
    return r < 0 ? r : s->node->publish(s->ctx, call, &id, &m, err);
}

/* Both accept an id that is not one of Cistern's: a pod must be able to end. */
static int unmount(const struct csi_service *s, const char *id_text, const char *path, const char *field,
                   int (*op)(void *ctx, const struct volume_id *id, const char *path, struct err *err), struct err *err)
{
    struct volume_id id;
    int r = need_field(path, field, err);
    if (r == 0)
        r = need_id(id_text, &id, err);
    if (r == -ERR_NOT_FOUND)
        return op(s->ctx, NULL, path, err);
    return r < 0 ? r : op(s->ctx, &id, path, err);
}

HANDLER(node_unstage, NodeUnstageVolume)
{
    return unmount(s, q->volume_id, q->staging_target_path, "staging_target_path", s->node->unstage, err);
}

HANDLER(node_unpublish, NodeUnpublishVolume)
{
    return unmount(s, q->volume_id, q->target_path, "target_path", s->node->unpublish, err);
}

/* ---- a mounted volume -------------------------------------------------------------------------------------------- */

static Csi__V1__VolumeUsage *usage_new(struct rpc_call *call, Csi__V1__VolumeUsage__Unit unit)
{
    Csi__V1__VolumeUsage *u = message_new(call, Csi__V1__VolumeUsage, csi__v1__volume_usage__init);
    u->unit = unit;
    return u;
}

HANDLER(node_stats, NodeGetVolumeStats)
{
    Csi__V1__VolumeUsage **usage = rpc_alloc(call, 2, sizeof *usage);
    struct health h;
    struct volume_id id;
    usage[0] = usage_new(call, CSI__V1__VOLUME_USAGE__UNIT__BYTES);
    usage[1] = usage_new(call, CSI__V1__VOLUME_USAGE__UNIT__INODES);
    int r = need_field(q->volume_path, "volume_path", err);
    if (r == 0)
        r = need_id(q->volume_id, &id, err);
    if (r == 0)
        r = s->node->stats(s->ctx, &id, q->volume_path, usage[0], usage[1], &h, err);
    if (r < 0)
        return r;
    p->n_usage = 2;
    p->usage = usage;
    p->volume_condition = health_condition(call, &h);
    return 0;
}

HANDLER(node_expand, NodeExpandVolume)
{
    struct volume_id id;
    uint64_t bytes;
    int r = need_field(q->volume_path, "volume_path", err);
    if (r == 0 && q->volume_capability)
        r = caps_check(q->volume_capability, err);
    if (r == 0)
        r = need_id(q->volume_id, &id, err);
    if (r == 0)
        r = s->node->expand(s->ctx, &id, q->volume_path, q->capacity_range, &bytes, err);
    if (r == 0)
        p->capacity_bytes = (int64_t)bytes;
    return r;
}

HANDLER(node_health, NodeGetVolumeHealth)
{
    struct health h;
    struct volume_id id;
    int r = need_id(q->volume_id, &id, err);
    if (r == 0)
        r = s->node->health(s->ctx, &id, q->volume_publish_path, &h, err);
    if (r == 0)
        p->volume_health = health_message(call, id.text, &h);
    return r;
}

/* ---- the node ---------------------------------------------------------------------------------------------------- */

/* Reports pools that cannot be reached; a full pool is healthy. */
HANDLER(node_storage_health, NodeGetStorageHealth)
{
    size_t count = s->node->pool_count(s->ctx);
    p->backend_health = rpc_alloc(call, count, sizeof *p->backend_health);
    for (size_t i = 0; i < count; i++) {
        struct err why;
        const char *name;
        if (s->node->pool_health(s->ctx, i, &name, &why) == 0)
            continue;
        Csi__V1__NodeGetStorageHealthResponse__StorageBackendHealth *h =
            message_new(call, Csi__V1__NodeGetStorageHealthResponse__StorageBackendHealth,
                        csi__v1__node_get_storage_health_response__storage_backend_health__init);
        h->status = CSI__V1__STORAGE_HEALTH_ERROR_TYPE__STORAGE_UNREACHABLE;
        h->reason = rpc_dup(call, STR("PoolUnreachable"));
        h->message = rpc_text(call, "pool '%s': %s", name, why.text);
        p->backend_health[p->n_backend_health++] = h;
    }
    return 0;
}

HANDLER(node_info, NodeGetInfo)
{
    p->node_id = rpc_dup(call, str_of(s->node_id));
    p->accessible_topology = topology_of_node(call, s->node_id);
    p->max_volumes_per_node = s->volumes_max;
    return 0;
}

/* ---- the service ------------------------------------------------------------------------------------------------- */

HANDLER(node_capabilities, NodeGetCapabilities)
{
#define CAN(type) CSI__V1__NODE_SERVICE_CAPABILITY__RPC__TYPE__##type
    static const Csi__V1__NodeServiceCapability__RPC__Type types[] = {
        CAN(STAGE_UNSTAGE_VOLUME),     CAN(GET_VOLUME_STATS),   CAN(EXPAND_VOLUME),     CAN(VOLUME_CONDITION),
        CAN(SINGLE_NODE_MULTI_WRITER), CAN(VOLUME_MOUNT_GROUP), CAN(GET_VOLUME_HEALTH), CAN(GET_STORAGE_HEALTH),
    };
#undef CAN
    p->n_capabilities = countof(types);
    p->capabilities = rpc_alloc(call, countof(types), sizeof *p->capabilities);
    for (size_t i = 0; i < countof(types); i++) {
        Csi__V1__NodeServiceCapability *c = p->capabilities[i] =
            message_new(call, Csi__V1__NodeServiceCapability, csi__v1__node_service_capability__init);
        c->type_case = CSI__V1__NODE_SERVICE_CAPABILITY__TYPE_RPC;
        c->rpc = message_new(call, typeof(*c->rpc), csi__v1__node_service_capability__rpc__init);
        c->rpc->type = types[i];
    }
    return 0;
}

#define NODE(name, type, handler) METHOD("Node", name, type, handler, false)
const struct rpc_method node_methods[NODE_METHODS] = {
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
};
