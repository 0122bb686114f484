/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"
#include "progress.h"
#include "volume/mount.h"
#include "volume/record.h"
#include <stdio.h>

/* ---- a volume at a path ------------------------------------------------------------------------------------------ */

/* ERR_NOT_FOUND also for a volume that is here, but not at this path. */
static int find_at(struct driver *d, const char *id, const char *path, struct space **ret_space, struct volume **ret,
                   struct err *err)
{
    auto_volume v = NULL;
    auto_record record = {0};
    bool mounted = false;
    int r = driver_find(d, id, ret_space, &v, err);
    if (r == 0)
        r = record_of(v, &record, err);
    if (r < 0)
        return r;
    bool known = record.is_lost || (record.staged && strcmp(record.staged, path) == 0) || record_target(&record, path);
    if (known)
        r = mount_is_at(path, &mounted, err);
    if (r < 0)
        return r;
    if (!mounted)
        return err_set(err, ERR_NOT_FOUND, "volume '%s' is not at '%s'", id, path);
    *ret = take(&v);
    return 0;
}

/* ---- stats ------------------------------------------------------------------------------------------------------- */

static Csi__V1__VolumeUsage *usage(struct rpc_call *call, Csi__V1__VolumeUsage__Unit unit, uint64_t total,
                                   uint64_t used, uint64_t available)
{
    Csi__V1__VolumeUsage *u = rpc_alloc(call, 1, sizeof *u);
    csi__v1__volume_usage__init(u);
    u->unit = unit;
    u->total = (int64_t)total;
    u->used = (int64_t)used;
    u->available = (int64_t)available;
    return u;
}

HANDLER(node_stats)
{
    struct driver *d = ctx;
    const Csi__V1__NodeGetVolumeStatsRequest *q = (const Csi__V1__NodeGetVolumeStatsRequest *)request;
    Csi__V1__NodeGetVolumeStatsResponse *p = (Csi__V1__NodeGetVolumeStatsResponse *)reply;
    struct volume_usage u;
    struct health h;
    struct space *s;
    auto_volume v = NULL;
    int r = need_field(q->volume_path, "volume_path", err);
    if (r == 0)
        r = find_at(d, q->volume_id, q->volume_path, &s, &v, err);
    if (r == 0)
        r = volume_usage(v, &u, err);
    if (r < 0)
        return r;
    health_of(v, &h);
    p->n_usage = 2;
    p->usage = rpc_alloc(call, p->n_usage, sizeof *p->usage);
    p->usage[0] = usage(call, CSI__V1__VOLUME_USAGE__UNIT__BYTES, u.total_bytes, u.used_bytes, u.available_bytes);
    p->usage[1] = usage(call, CSI__V1__VOLUME_USAGE__UNIT__INODES, u.total_inodes, u.used_inodes, u.available_inodes);
    p->volume_condition = health_condition(call, &h);
    return 0;
}

/* ---- grow -------------------------------------------------------------------------------------------------------- */

HANDLER(node_expand)
{
    (void)call;
    struct driver *d = ctx;
    const Csi__V1__NodeExpandVolumeRequest *q = (const Csi__V1__NodeExpandVolumeRequest *)request;
    Csi__V1__NodeExpandVolumeResponse *p = (Csi__V1__NodeExpandVolumeResponse *)reply;
    auto_claim claim = {0};
    auto_volume v = NULL;
    struct space *s;
    uint64_t size = 0, limit;
    int r = need_field(q->volume_path, "volume_path", err);
    if (r == 0 && q->volume_capability)
        r = caps_check(q->volume_capability, err);
    if (r == 0)
        r = claim_take(&d->claims, q->volume_id, &claim, err);
    if (r == 0)
        r = find_at(d, q->volume_id, q->volume_path, &s, &v, err);
    if (r == 0)
        r = caps_size(q->capacity_range, v->spec->capacity_bytes, v->spec->params.max_volume_bytes, &size, &limit, err);
    if (r == 0 && size > v->spec->capacity_bytes)
        r = space_grow(s, str_of(q->volume_id), size, err);
    if (r < 0)
        return r;
    p->capacity_bytes = (int64_t)size;
    driver_tell(d, v);
    return 0;
}

/* ---- health ------------------------------------------------------------------------------------------------------ */

HANDLER(node_health)
{
    struct driver *d = ctx;
    const Csi__V1__NodeGetVolumeHealthRequest *q = (const Csi__V1__NodeGetVolumeHealthRequest *)request;
    Csi__V1__NodeGetVolumeHealthResponse *p = (Csi__V1__NodeGetVolumeHealthResponse *)reply;
    struct health h;
    struct space *s;
    auto_volume v = NULL;
    int r = need_field(q->volume_id, "volume_id", err);
    if (r == 0 && q->volume_publish_path[0])
        r = find_at(d, q->volume_id, q->volume_publish_path, &s, &v, err);
    else if (r == 0)
        r = driver_find(d, q->volume_id, &s, &v, err);
    if (r < 0)
        return r;
    health_of(v, &h);
    p->volume_health = health_message(call, q->volume_id, &h);
    return 0;
}

/* A pool that cannot be asked is unreachable; one that is full is not unwell. */
HANDLER(node_storage_health)
{
    (void)request, (void)err;
    struct driver *d = ctx;
    Csi__V1__NodeGetStorageHealthResponse *p = (Csi__V1__NodeGetStorageHealthResponse *)reply;
    p->backend_health = rpc_alloc(call, d->space_count, sizeof *p->backend_health);
    for (size_t i = 0; i < d->space_count; i++) {
        struct space_usage u;
        struct err why;
        if (space_usage(d->spaces[i], &u, &why) == 0)
            continue;
        Csi__V1__NodeGetStorageHealthResponse__StorageBackendHealth *h = rpc_alloc(call, 1, sizeof *h);
        csi__v1__node_get_storage_health_response__storage_backend_health__init(h);
        h->status = CSI__V1__STORAGE_HEALTH_ERROR_TYPE__STORAGE_UNREACHABLE;
        h->reason = rpc_dup(call, STR("PoolUnreachable"));
        h->message = rpc_text(call, "pool '%s': %s", space_name(d->spaces[i]), why.text);
        p->backend_health[p->n_backend_health++] = h;
    }
    return 0;
}

/* ---- who we are -------------------------------------------------------------------------------------------------- */

HANDLER(node_info)
{
    (void)request, (void)err;
    struct driver *d = ctx;
    Csi__V1__NodeGetInfoResponse *p = (Csi__V1__NodeGetInfoResponse *)reply;
    p->node_id = rpc_dup(call, str_of(d->node_id));
    p->accessible_topology = topology_of_node(call, d->node_id);
    p->max_volumes_per_node = d->is_node ? KEEPER_VOLUMES_MAX : 0;
    return 0;
}

HANDLER(node_capabilities)
{
#define CAN(type) CSI__V1__NODE_SERVICE_CAPABILITY__RPC__TYPE__##type
    static const Csi__V1__NodeServiceCapability__RPC__Type types[] = {
        CAN(STAGE_UNSTAGE_VOLUME),     CAN(GET_VOLUME_STATS),   CAN(EXPAND_VOLUME),     CAN(VOLUME_CONDITION),
        CAN(SINGLE_NODE_MULTI_WRITER), CAN(VOLUME_MOUNT_GROUP), CAN(GET_VOLUME_HEALTH), CAN(GET_STORAGE_HEALTH),
    };
#undef CAN
    (void)ctx, (void)request, (void)err;
    Csi__V1__NodeGetCapabilitiesResponse *p = (Csi__V1__NodeGetCapabilitiesResponse *)reply;
    p->n_capabilities = countof(types);
    p->capabilities = rpc_alloc(call, countof(types), sizeof *p->capabilities);
    for (size_t i = 0; i < countof(types); i++) {
        Csi__V1__NodeServiceCapability *c = rpc_alloc(call, 1, sizeof *c);
        csi__v1__node_service_capability__init(c);
        c->type_case = CSI__V1__NODE_SERVICE_CAPABILITY__TYPE_RPC;
        c->rpc = rpc_alloc(call, 1, sizeof *c->rpc);
        csi__v1__node_service_capability__rpc__init(c->rpc);
        c->rpc->type = types[i];
        p->capabilities[i] = c;
    }
    return 0;
}
