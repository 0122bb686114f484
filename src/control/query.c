/* SPDX-License-Identifier: Apache-2.0 */
/* ControllerGetVolume, ListVolumes and GetCapacity, from the informers. */
#include "private.h"
#include "release.h"
#include <inttypes.h>
#include <stdio.h>

/* ---- health ------------------------------------------------------------------------------------------------------ */

static void add_item(struct health *h, Csi__V1__VolumeHealthErrorType type, const char *reason, const char *message)
{
    snprintf(health_add(h, type, reason)->message, HEALTH_TEXT_MAX, "%.*s", HEALTH_TEXT_MAX - 1,
             message && message[0] ? message : reason);
}

static const char *message_of(const struct api_volume *v, const char *type)
{
    const struct api_condition *c = api_condition_find(&v->status.conditions, type);
    return c ? c->message : NULL;
}

static void read_health(const struct api_volume *v, struct health *h)
{
    const struct api_hydration *in = &v->status.hydration;
    memset(h, 0, sizeof *h);
    if (v->status.phase == API_PHASE_LOST)
        add_item(h, CSI__V1__VOLUME_HEALTH_ERROR_TYPE__INACCESSIBLE, "VolumeLost", message_of(v, API_NODE_GONE));
    if (v->status.phase == API_PHASE_FAILED)
        add_item(h, CSI__V1__VOLUME_HEALTH_ERROR_TYPE__INACCESSIBLE, "HydrationFailed", message_of(v, API_HYDRATED));
    if (v->status.phase == API_PHASE_EXPORT_FAILED)
        add_item(h, CSI__V1__VOLUME_HEALTH_ERROR_TYPE__DEGRADED, "ExportFailed", message_of(v, API_EXPORTED));
    if (api_condition_is(&v->status.conditions, API_HEALTHY, API_FALSE))
        add_item(h, CSI__V1__VOLUME_HEALTH_ERROR_TYPE__DEGRADED, "Unhealthy", message_of(v, API_HEALTHY));
    if (v->status.phase == API_PHASE_HYDRATING && in->bytes_total)
        snprintf(h->progress, sizeof h->progress, "hydrating: %" PRIu64 " of %" PRIu64 " bytes", in->bytes_done,
                 in->bytes_total);
}

int control_get(void *ctx, struct rpc_call *call, const struct volume_id *id, struct csi_volume *ret,
                struct health *ret_health, struct err *err)
{
    auto_api_volume v = NULL;
    int r = volume_find(ctx, id, &v, err);
    if (r < 0)
        return r;
    read_health(v, ret_health);
    *ret = csi_volume_of(call, v);
    return 0;
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

struct listed_volume {
    struct volume_id id;
    struct str key; /* owned: the object's name */
};

/* Collects the first volumes of a page, sorted, and one more, which shows that another page follows. */
struct volume_list {
    struct listed_volume *items; /* owned; max + 1 of them */
    size_t count, max;
    const struct volume_id *after;
};

static void volume_list_done(struct volume_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        free((char *)l->items[i].key.ptr);
    free(l->items);
}

static void insert(struct volume_list *l, const struct volume_id *id, struct str key)
{
    size_t at = l->count;
    while (at > 0 && strcmp(id->text, l->items[at - 1].id.text) < 0)
        at--;
    if (at > l->max)
        return;
    if (l->count == l->max + 1)
        free((char *)l->items[--l->count].key.ptr);
    memmove(&l->items[at + 1], &l->items[at], (l->count - at) * sizeof l->items[0]);
    l->items[at] = (struct listed_volume){*id, {str_dup(key), key.len}};
    l->count++;
}

static int insert_object(void *ctx, struct str key, const json *object)
{
    struct volume_list *l = ctx;
    struct str text;
    struct volume_id id;
    if (json_as_str(json_at(object, "spec.volumeID"), &text) && volume_id_parse(text, &id) &&
        strcmp(id.text, l->after->text) > 0)
        insert(l, &id, key);
    return 0;
}

/* A volume whose DeleteVolume has returned, or may return now, is not listed: the informer's copy may be old. */
static void add_entry(struct control *c, struct str key, struct csi_page *page)
{
    struct health h;
    auto_api_volume v = NULL;
    auto_json j = kube_informer_get_by_key(c->o.volumes, key);
    if (!j || api_volume_read(j, &v, ERR_IGNORED) < 0 || release_is_over(v) || release_is_tombstone(v))
        return;
    read_health(v, &h);
    struct csi_volume shown = csi_volume_of(page->call, v);
    page->add(page, &shown, &h);
}

int control_list(void *ctx, struct csi_page *page, struct err *err)
{
    struct control *c = ctx;
    int r = informers_have_synced(c, err);
    if (r < 0)
        return r;
    auto_with(volume_list_done) struct volume_list l = {.max = page->max, .after = &page->after};
    l.items = xcalloc(l.max + 1, sizeof *l.items);
    (void)kube_informer_each(c->o.volumes, -1, STR_NULL, insert_object, &l);
    for (size_t i = 0; i < min_u64(l.count, l.max); i++)
        add_entry(c, l.items[i].key, page);
    if (l.count > l.max)
        page->next = l.items[l.max - 1].id;
    return 0;
}

/* ---- capacity ---------------------------------------------------------------------------------------------------- */

struct capacity_sum {
    struct control *c;
    const char *pool;
    const char *node; /* NULL: all of them */
    bool node_is_known;
    uint64_t available, largest;
};

static int add_pool(void *ctx, struct str, const json *object)
{
    struct capacity_sum *s = ctx;
    auto_api_pool p = NULL;
    if (api_pool_read(object, &p, ERR_IGNORED) < 0 || strcmp(p->pool, s->pool) != 0 || !api_pool_is_healthy(p))
        return 0;
    /* A deleted node has no free space, even if its pool last reported some. */
    auto_json node = kube_informer_get(s->c->o.nodes, STR_NULL, str_of(p->node));
    if (!node)
        return 0;
    s->available += min_u64(p->available_bytes, UINT64_MAX - s->available);
    s->largest = max_u64(s->largest, p->largest_volume_bytes);
    return 0;
}

static int keep_known(void *ctx, struct str, const json *object)
{
    struct capacity_sum *s = ctx;
    auto_api_pool p = NULL;
    s->node_is_known |= api_pool_read(object, &p, ERR_IGNORED) == 0 && strcmp(p->node, s->node) == 0 && p->health;
    return s->node_is_known ? -1 : 0;
}

/* An answer of 0 holds until external-provisioner's next poll; an error is retried at once, and at each poll. So 0 is
 * only for a node that has reported its pools. */
static int add_node(struct capacity_sum *s, struct err *err)
{
    auto_api_pool p = NULL;
    int r = control_cached_pool(s->c, s->node, s->pool, &p, err);
    if (r < 0)
        return r;
    if (p && api_pool_is_healthy(p)) {
        s->available = p->available_bytes;
        s->largest = p->largest_volume_bytes;
    }
    if (p && p->health)
        return 0;
    (void)kube_informer_each(s->c->o.pools, -1, STR_NULL, keep_known, s);
    if (!p && s->node_is_known)
        return 0;
    return err_fail(err, ERR_AGAIN, CIS_POOL_NOT_REPORTED, "node %s has not reported pool '%s' yet", s->node, s->pool);
}

int control_capacity(void *ctx, const struct spec *class, const struct csi_place *where, struct csi_capacity *ret,
                     struct err *err)
{
    struct control *c = ctx;
    struct capacity_sum s = {.c = c, .pool = class->params.pool, .node = where ? where->node : NULL};
    int r = spec_check(class, err);
    if (r == 0)
        r = informers_have_synced(c, err);
    if (r < 0)
        return r;
    if (s.node)
        r = add_node(&s, err);
    else if (!where || !where->other_key)
        (void)kube_informer_each(c->o.pools, -1, STR_NULL, add_pool, &s);
    *ret = (struct csi_capacity){true, s.available, s.largest};
    return r;
}
