/* SPDX-License-Identifier: Apache-2.0 */
/* The standalone driver's Controller service. DeleteVolume is in release.c. */
#include "csi/caps.h"
#include "private.h"
#include "util/log.h"

/* ---- create ------------------------------------------------------------------------------------------------------ */

static bool is_at(const struct driver *d, const struct csi_place *p)
{
    return !p->node || strcmp(p->node, d->node_id) == 0;
}

static int check_topology(struct driver *d, const struct csi_create *q, struct err *err)
{
    for (size_t i = 0; i < q->requisite_count; i++)
        if (is_at(d, &q->requisite[i]))
            return 0;
    if (q->requisite_count > 0)
        return err_set(err, ERR_NO_SPACE, "volume '%s': the topology excludes node '%s', the only one here", q->name,
                       d->node_id);
    return 0;
}

/* A name is unique in all pools. A pool that is not open cannot be searched. */
static int check_other_pools(struct driver *d, const struct pool *here, const char *name, struct err *err)
{
    for (size_t i = 0; i < d->pool_count; i++) {
        auto_volume v = NULL;
        if (d->pools[i] == here)
            continue;
        int r = pool_find_volume_name(d->pools[i], str_of(name), &v, err);
        if (r == 0)
            return err_set(err, ERR_EXISTS, "volume '%s': exists already in pool '%s'", name, pool_name(d->pools[i]));
        if (r != -ERR_NOT_FOUND && r != -ERR_ABSENT)
            return r;
    }
    return 0;
}

/* The volume's hydration starts here; NodePublishVolume waits for it. */
static int begin_hydration(struct driver *d, const struct volume *v, struct err *err)
{
    struct driver_job_view view;
    if (volume_is_hydrated(v))
        return 0;
    return driver_request_job(d, v, JOB_HYDRATE, false, &view, err);
}

static struct csi_volume volume_of(const struct driver *d, const char *id, uint64_t capacity_bytes)
{
    return (struct csi_volume){.id = id, .node = d->node_id, .capacity_bytes = capacity_bytes};
}

static int create(void *ctx, struct rpc_call *call, const struct csi_create *q, struct csi_volume *ret, struct err *err)
{
    struct driver *d = ctx;
    auto_volume_lock lock = NO_VOLUME_LOCK;
    auto_volume v = NULL;
    struct pool *p;
    int r = check_topology(d, q, err);
    if (r == 0)
        r = driver_pool_get(d, q->spec->params.pool, &p, err);
    if (r == 0)
        r = volume_lock_take(&d->locks, rpc_text(call, "/%s", q->name), &lock, err);
    if (r == 0)
        r = check_other_pools(d, p, q->name, err);
    if (r == 0)
        r = pool_create_volume(p, q->spec, q->limit_bytes, &v, err);
    if (r == 0)
        r = begin_hydration(d, v, err);
    if (r < 0)
        return r;
    log_event(LOG_INFO, "CreateVolume succeeded", "volume", v->spec->id.text, "name", q->name, "bytes",
              log_u64(v->spec->capacity_bytes), NULL);
    *ret = volume_of(d, rpc_dup(call, str_of(v->spec->id.text)), v->spec->capacity_bytes);
    return 0;
}

/* ---- expand and modify ------------------------------------------------------------------------------------------- */

static int check_room(struct pool *p, const struct volume *v, uint64_t size, struct err *err)
{
    struct pool_usage u;
    int r = pool_usage(p, &u, err);
    if (r < 0)
        return r;
    uint64_t more = size - v->spec->capacity_bytes;
    if (more <= u.available_bytes)
        return 0;
    char wanted[BYTES_TEXT_MAX], there[BYTES_TEXT_MAX];
    return err_fail(err, ERR_RANGE, CIS_VOLUME_GROW_LIMIT,
                    "volume '%s': cannot grow: it needs %s more, pool '%s' has %s available", v->spec->id.text,
                    bytes_text(more, wanted), pool_name(p), bytes_text(u.available_bytes, there));
}

static int expand(void *ctx, const struct volume_id *id, const Csi__V1__CapacityRange *range, uint64_t *ret_bytes,
                  bool *ret_on_node, struct err *err)
{
    auto_volume v = NULL;
    struct pool *p;
    uint64_t limit;
    int r = driver_find(ctx, id, &p, &v, err);
    if (r == 0)
        r = caps_size(range, v->spec->capacity_bytes, v->spec->params.max_volume_bytes, ret_bytes, &limit, err);
    if (r < 0)
        return r;
    *ret_on_node = *ret_bytes > v->spec->capacity_bytes;
    return *ret_on_node ? check_room(p, v, *ret_bytes, err) : 0;
}

static int modify(void *ctx, const struct volume_id *id, struct csi_pairs pairs, struct err *err)
{
    auto_volume v = NULL;
    auto_volume_lock lock = NO_VOLUME_LOCK;
    struct pool *p;
    int r = driver_lock_volume(ctx, id, &lock, &p, &v, err);
    if (r < 0)
        return r;
    auto_mem struct pool_volume_change *changes = xcalloc(pairs.count + 1, sizeof *changes);
    for (size_t i = 0; i < pairs.count; i++)
        changes[i] =
            (struct pool_volume_change){.key = str_of(pairs.items[i].key), .value = str_of(pairs.items[i].value)};
    return pool_modify_volume(p, id, changes, pairs.count, err);
}

/* ---- get and list ------------------------------------------------------------------------------------------------ */

static int get(void *ctx, struct rpc_call *call, const struct volume_id *id, struct csi_volume *ret,
               struct health *ret_health, struct err *err)
{
    struct driver *d = ctx;
    struct pool *p;
    auto_volume v = NULL;
    int r = driver_find(d, id, &p, &v, err);
    if (r < 0)
        return r;
    volume_health(v, ret_health);
    *ret = volume_of(d, rpc_dup(call, str_of(id->text)), v->spec->capacity_bytes);
    return 0;
}

/* A volume that is deleted while it is listed counts as healthy. */
static void add_entry(struct driver *d, const struct pool_entry *e, struct csi_page *page)
{
    struct pool *p;
    struct health h = {0};
    auto_volume v = NULL;
    if (driver_find(d, &e->volume_id, &p, &v, ERR_IGNORED) == 0)
        volume_health(v, &h);
    struct csi_volume shown = volume_of(d, e->volume_id.text, e->capacity_bytes);
    page->add(page, &shown, &h);
}

static int list_pool(struct driver *d, struct pool *p, const struct volume_id *after, struct csi_page *page,
                     size_t *count, struct volume_id *last, struct err *err)
{
    struct pool_entry *entries;
    size_t n;
    int r = pool_list_volumes(p, after, page->max + 1 - *count, &entries, &n, err);
    if (r < 0)
        return r == -ERR_ABSENT ? 0 : r; /* the volumes of the other pools are still listed */
    for (size_t i = 0; i < n && *count < page->max; i++, ++*count) {
        add_entry(d, &entries[i], page);
        *last = entries[i].volume_id;
    }
    if (n > 0 && strcmp(entries[n - 1].volume_id.text, last->text) != 0)
        page->next = *last;
    pool_entries_free(entries, n);
    return 0;
}

/* In the order of pools, and within a pool in the order of ids. */
static int list(void *ctx, struct csi_page *page, struct err *err)
{
    struct driver *d = ctx;
    struct volume_id after = page->after, last = after;
    size_t pool = 0, count = 0;
    int r = 0;
    if (after.text[0]) {
        struct pool *p = driver_pool_of(d, &after);
        if (!p)
            return csi_token_invalid(after.text, err);
        while (d->pools[pool] != p)
            pool++;
    }
    for (; r == 0 && pool < d->pool_count && !page->next.text[0]; pool++) {
        r = list_pool(d, d->pools[pool], &after, page, &count, &last, err);
        after = (struct volume_id){0};
    }
    return r;
}

/* ---- capacity ---------------------------------------------------------------------------------------------------- */

static int capacity(void *ctx, const struct spec *class, const struct csi_place *where, struct csi_capacity *ret,
                    struct err *err)
{
    struct driver *d = ctx;
    struct pool_usage u = {0};
    struct pool *p;
    int r = driver_pool_get(d, class->params.pool, &p, err);
    if (r == 0)
        r = pool_usage(p, &u, err);
    if (r < 0 && r != -ERR_ABSENT) /* a pool that is not open has no free space */
        return r;
    ret->is_accessible = !where || is_at(d, where);
    ret->available_bytes = u.available_bytes;
    ret->largest_bytes = u.largest_bytes;
    return 0;
}

const struct csi_controller_ops driver_controller_ops = {
    .set_parameter = spec_set,
    .create = create,
    .delete = driver_delete,
    .get = get,
    .list = list,
    .capacity = capacity,
    .expand = expand,
    .modify = modify,
};
