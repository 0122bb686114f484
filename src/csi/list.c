/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes in the order of pools, and in a pool of ids. A token is the id of the last volume that was told: it stays
 * good when that volume is gone. */
#include "driver.h"
#include "progress.h"
#include <inttypes.h>

enum { PAGE_MAX = 1000 }; /* of volumes, some 300 bytes each: below the 4 MiB that callers take */

/* ---- pages ------------------------------------------------------------------------------------------------------- */

struct page {
    struct space_entry *entries; /* owned */
    size_t count;                /* to be told; there may be one entry more, which says that there is more */
    size_t have;
};

static void page_done(struct page *p)
{
    space_entries_free(p->entries, p->have);
}

static int first_pool(struct driver *d, const char *token, size_t *ret, struct err *err)
{
    *ret = 0;
    if (!token[0])
        return 0;
    struct space *s = driver_space_of(d, token);
    if (!s)
        return err_set(err, ERR_PENDING, "starting_token '%.64s' is none of ours: begin again without one", token);
    while (d->spaces[*ret] != s)
        ++*ret;
    return 0;
}

static void page_append(struct page *p, struct space_entry *own_more, size_t count)
{
    if (count > 0) {
        p->entries = xrealloc(p->entries, p->have + count, sizeof *p->entries);
        memcpy(p->entries + p->have, own_more, count * sizeof *own_more);
        p->have += count;
    }
    free(own_more);
}

static int page_read(struct driver *d, int32_t max_entries, const char *token, struct page *ret, struct err *err)
{
    size_t pool;
    if (max_entries < 0)
        return err_set(err, ERR_INVALID, "max_entries %" PRId32 " is negative", max_entries);
    int r = first_pool(d, token, &pool, err);
    size_t max = max_entries > 0 ? min_u64((uint64_t)max_entries, PAGE_MAX) : PAGE_MAX;
    for (struct str after = str_of(token); r == 0 && pool < d->space_count && ret->have <= max; pool++) {
        struct space_entry *more;
        size_t count;
        r = space_list(d->spaces[pool], after, max + 1 - ret->have, &more, &count, err);
        if (r == 0)
            page_append(ret, more, count);
        if (r == -ERR_ABSENT)
            r = 0; /* the others' volumes are listed all the same */
        after = STR_NULL;
    }
    ret->count = min_u64(ret->have, max);
    return r;
}

static char *next_token(struct rpc_call *call, const struct page *p)
{
    return p->have > p->count ? rpc_dup(call, str_of(p->entries[p->count - 1].id)) : rpc_dup(call, STR_NULL);
}

/* ---- volumes ----------------------------------------------------------------------------------------------------- */

/* A volume that goes away while it is looked at is not unwell. */
static void health_by_id(struct driver *d, const char *id, struct health *ret)
{
    struct err err;
    struct space *s;
    auto_volume v = NULL;
    memset(ret, 0, sizeof *ret);
    if (driver_find(d, id, &s, &v, &err) == 0)
        health_of(v, ret);
}

static Csi__V1__ListVolumesResponse__Entry *entry_of(struct driver *d, struct rpc_call *call,
                                                     const struct space_entry *e)
{
    struct health h;
    Csi__V1__ListVolumesResponse__Entry *m = rpc_alloc(call, 1, sizeof *m);
    csi__v1__list_volumes_response__entry__init(m);
    m->volume = volume_message(d, call, e->id, e->capacity_bytes);
    m->status = rpc_alloc(call, 1, sizeof *m->status);
    csi__v1__list_volumes_response__volume_status__init(m->status);
    health_by_id(d, e->id, &h);
    m->status->volume_condition = health_condition(call, &h);
    return m;
}

HANDLER(controller_list)
{
    struct driver *d = ctx;
    const Csi__V1__ListVolumesRequest *q = (const Csi__V1__ListVolumesRequest *)request;
    Csi__V1__ListVolumesResponse *p = (Csi__V1__ListVolumesResponse *)reply;
    auto_with(page_done) struct page page = {0};
    int r = page_read(d, q->max_entries, q->starting_token, &page, err);
    if (r < 0)
        return r;
    p->entries = rpc_alloc(call, page.count, sizeof *p->entries);
    for (; p->n_entries < page.count; p->n_entries++)
        p->entries[p->n_entries] = entry_of(d, call, &page.entries[p->n_entries]);
    p->next_token = next_token(call, &page);
    return 0;
}

static int find_health(struct driver *d, const char *id, struct volume **ret, struct health *ret_health,
                       struct err *err)
{
    struct space *s;
    int r = driver_find(d, id, &s, ret, err);
    if (r == 0)
        health_of(*ret, ret_health);
    return r;
}

HANDLER(controller_get)
{
    struct driver *d = ctx;
    const Csi__V1__ControllerGetVolumeRequest *q = (const Csi__V1__ControllerGetVolumeRequest *)request;
    Csi__V1__ControllerGetVolumeResponse *p = (Csi__V1__ControllerGetVolumeResponse *)reply;
    struct health h;
    auto_volume v = NULL;
    int r = find_health(d, q->volume_id, &v, &h, err);
    if (r < 0)
        return r;
    p->volume = volume_message(d, call, q->volume_id, v->spec->capacity_bytes);
    p->status = rpc_alloc(call, 1, sizeof *p->status);
    csi__v1__controller_get_volume_response__volume_status__init(p->status);
    p->status->volume_condition = health_condition(call, &h);
    return 0;
}

/* ---- health ------------------------------------------------------------------------------------------------------ */

HANDLER(controller_list_health)
{
    struct driver *d = ctx;
    const Csi__V1__ControllerListVolumeHealthRequest *q = (const Csi__V1__ControllerListVolumeHealthRequest *)request;
    Csi__V1__ControllerListVolumeHealthResponse *p = (Csi__V1__ControllerListVolumeHealthResponse *)reply;
    auto_with(page_done) struct page page = {0};
    int r = page_read(d, q->max_entries, q->starting_token, &page, err);
    if (r < 0)
        return r;
    p->entries = rpc_alloc(call, page.count, sizeof *p->entries);
    for (size_t i = 0; i < page.count; i++) {
        struct health h;
        health_by_id(d, page.entries[i].id, &h);
        if (h.count > 0)
            p->entries[p->n_entries++] = health_message(call, page.entries[i].id, &h);
    }
    p->next_token = next_token(call, &page);
    return 0;
}

HANDLER(controller_get_health)
{
    struct driver *d = ctx;
    const Csi__V1__ControllerGetVolumeHealthRequest *q = (const Csi__V1__ControllerGetVolumeHealthRequest *)request;
    Csi__V1__ControllerGetVolumeHealthResponse *p = (Csi__V1__ControllerGetVolumeHealthResponse *)reply;
    struct health h;
    auto_volume v = NULL;
    int r = find_health(d, q->volume_id, &v, &h, err);
    if (r < 0)
        return r;
    p->volume_health = health_message(call, q->volume_id, &h);
    return 0;
}

/* ---- capacity ---------------------------------------------------------------------------------------------------- */

/* What these words ask for; the pool is `default` unless they say another. */
static int read_class(struct driver *d, const struct pair *pairs, size_t count, struct space **ret_space,
                      struct spec **ret, struct err *err)
{
    auto_spec s = spec_new();
    for (size_t i = 0; i < count; i++) {
        int r = spec_set(s, str_of(pairs[i].key), str_of(pairs[i].value), err);
        if (r < 0)
            return r;
    }
    int r = driver_space_named(d, s->params.pool, ret_space, err);
    if (r == 0)
        *ret = take(&s);
    return r;
}

HANDLER(controller_capacity)
{
    struct driver *d = ctx;
    const Csi__V1__GetCapacityRequest *q = (const Csi__V1__GetCapacityRequest *)request;
    Csi__V1__GetCapacityResponse *p = (Csi__V1__GetCapacityResponse *)reply;
    struct space_usage u = {0};
    struct space *s;
    struct err unfit;
    auto_spec class = NULL;
    int r = read_class(d, pairs_of(call, q, parameters), q->n_parameters, &s, &class, err);
    if (r == 0)
        r = space_usage(s, &u, err);
    if (r < 0 && r != -ERR_ABSENT) /* a pool that is not here has no room */
        return r;
    bool here = !q->accessible_topology || topology_is_here(d, q->accessible_topology);
    if (q->n_volume_capabilities > 0)
        here = here && caps_check_all(q->volume_capabilities, q->n_volume_capabilities, &unfit) == 0;
    capacity_reply(call, class, here, u.available_bytes, u.largest_bytes, p);
    return 0;
}
