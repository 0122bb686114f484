/* SPDX-License-Identifier: Apache-2.0 */
#include "csi/caps.h"
#include "pool/mount.h"
#include "private.h"

/* ERR_NOT_FOUND also for a volume that exists and is not mounted at this path. */
static int find_at(struct driver *d, const struct volume_id *id, const char *path, struct pool **ret_pool,
                   struct volume **ret, struct err *err)
{
    auto_volume v = NULL;
    auto_record record = {0};
    bool mounted = false;
    int r = driver_find(d, id, ret_pool, &v, err);
    if (r == 0)
        r = record_of(v, &record, err);
    if (r < 0)
        return r;
    bool is_staging = record_is_staged_at(&record, path);
    if (record.is_lost || is_staging || record_target(&record, path))
        r = mount_is_at(is_staging ? record.staged : path, &mounted, err);
    if (r < 0)
        return r;
    if (!mounted)
        return err_set(err, ERR_NOT_FOUND, "volume '%s': not mounted at '%s'", id->text, path);
    *ret = take(&v);
    return 0;
}

static void set_usage(Csi__V1__VolumeUsage *u, uint64_t total, uint64_t used, uint64_t available)
{
    u->total = (int64_t)total;
    u->used = (int64_t)used;
    u->available = (int64_t)available;
}

static int stats(void *ctx, const struct volume_id *id, const char *path, Csi__V1__VolumeUsage *bytes,
                 Csi__V1__VolumeUsage *inodes, struct health *ret_health, struct err *err)
{
    struct volume_usage u;
    struct pool *p;
    auto_volume v = NULL;
    int r = find_at(ctx, id, path, &p, &v, err);
    if (r == 0)
        r = volume_usage(v, &u, err);
    if (r < 0)
        return r;
    set_usage(bytes, u.total_bytes, u.used_bytes, u.available_bytes);
    set_usage(inodes, u.total_inodes, u.used_inodes, u.available_inodes);
    volume_health(v, ret_health);
    return 0;
}

static int expand(void *ctx, const struct volume_id *id, const char *path, const Csi__V1__CapacityRange *range,
                  uint64_t *ret_bytes, struct err *err)
{
    struct driver *d = ctx;
    auto_volume_lock lock = NO_VOLUME_LOCK;
    auto_volume v = NULL;
    struct pool *p;
    uint64_t limit;
    int r = volume_lock_take(&d->locks, id->text, &lock, err);
    if (r == 0)
        r = find_at(d, id, path, &p, &v, err);
    if (r == 0)
        r = caps_size(range, v->spec->capacity_bytes, v->spec->params.max_volume_bytes, ret_bytes, &limit, err);
    if (r == 0 && *ret_bytes > v->spec->capacity_bytes)
        r = pool_grow_volume(p, id, *ret_bytes, err);
    if (r == 0)
        driver_volume_changed(d, v);
    return r;
}

static int health(void *ctx, const struct volume_id *id, const char *path, struct health *ret, struct err *err)
{
    struct pool *p;
    auto_volume v = NULL;
    int r = path[0] ? find_at(ctx, id, path, &p, &v, err) : driver_find(ctx, id, &p, &v, err);
    if (r == 0)
        volume_health(v, ret);
    return r;
}

static size_t count_pools(void *ctx)
{
    return driver_pool_count(ctx);
}

static int health_of_pool(void *ctx, size_t pool, const char **ret_name, struct err *err)
{
    struct pool *p = driver_pool_at(ctx, pool);
    struct pool_usage u;
    *ret_name = pool_name(p);
    return pool_usage(p, &u, err);
}

const struct csi_node_ops driver_node_ops = {
    .stage = driver_stage,
    .unstage = driver_unstage,
    .publish = driver_publish,
    .unpublish = driver_unpublish,
    .stats = stats,
    .expand = expand,
    .health = health,
    .pool_count = count_pools,
    .pool_health = health_of_pool,
};
