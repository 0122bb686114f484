/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes in the order of their ids, from the informer. A token is the id of the last volume that was told: it stays
 * good when that volume is gone. */
#include "contract/health.h"
#include "private.h"
#include "release.h"
#include <inttypes.h>
#include <stdio.h>

enum { PAGE_MAX = 1000 }; /* of volumes, some 300 bytes each: below the 4 MiB that callers take */

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

static void health_of(const struct api_volume *v, struct health *h)
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

/* ---- pages ------------------------------------------------------------------------------------------------------- */

struct entry {
    char id[SPEC_ID_LEN + 1];
    struct str key; /* owned: the object's name */
};

/* The first volumes behind a token, kept sorted: at most one more than a page, which says that there is more. */
struct page {
    struct entry entries[PAGE_MAX + 1];
    size_t count, max;
    size_t next; /* to be told */
    struct str after;
};

static void page_free(struct page *own_p)
{
    for (size_t i = 0; own_p && i < own_p->count; i++)
        free((char *)own_p->entries[i].key.ptr);
    free(own_p);
}
DEFINE_AUTO(page, struct page, page_free)
#define auto_page auto_with(auto_clean_page) struct page *

static void page_insert(struct page *p, struct str id, struct str key)
{
    size_t at = p->count;
    while (at > 0 && str_cmp(id, str_of(p->entries[at - 1].id)) < 0)
        at--;
    if (at > p->max)
        return;
    if (p->count == p->max + 1)
        free((char *)p->entries[--p->count].key.ptr);
    memmove(&p->entries[at + 1], &p->entries[at], (p->count - at) * sizeof p->entries[0]);
    memcpy(p->entries[at].id, id.ptr, SPEC_ID_LEN);
    p->entries[at].id[SPEC_ID_LEN] = '\0';
    p->entries[at].key = (struct str){str_dup(key), key.len};
    p->count++;
}

static int look(void *ctx, struct str key, const json *object)
{
    struct page *p = ctx;
    struct str id;
    if (json_as_str(json_at(object, "spec.volumeID"), &id) && spec_id_is_valid(id) && str_cmp(id, p->after) > 0)
        page_insert(p, id, key);
    return 0;
}

static int page_read(struct control *c, int32_t max_entries, const char *token, struct page **ret, struct err *err)
{
    if (max_entries < 0)
        return err_set(err, ERR_INVALID, "max_entries %" PRId32 " is negative", max_entries);
    if (token[0] && !spec_id_is_valid(str_of(token)))
        return err_set(err, ERR_PENDING, "starting_token '%.64s' is none of ours: begin again without one", token);
    int r = copies_are_whole(c, err);
    if (r < 0)
        return r;
    struct page *p = xcalloc(1, sizeof *p);
    p->max = max_entries > 0 ? min_u64((uint64_t)max_entries, PAGE_MAX) : PAGE_MAX;
    p->after = str_of(token);
    (void)kube_informer_each(c->o.volumes, -1, STR_NULL, look, p);
    *ret = p;
    return 0;
}

/* DeleteVolume has called it gone, or may do so at once; our copy may hear of the rest only later. */
static bool is_deleted(const struct api_volume *v)
{
    return release_is_over(v) || release_is_tombstone(v);
}

/* The next volume that is still there; NULL: the page is told. */
static struct api_volume *page_next(struct control *c, struct page *p)
{
    struct err ignored;
    struct api_volume *v = NULL;
    while (!v && p->next < min_u64(p->count, p->max)) {
        auto_json j = kube_informer_get_by_key(c->o.volumes, p->entries[p->next++].key);
        if (!j || api_volume_read(j, &v, &ignored) < 0)
            v = NULL;
        else if (is_deleted(v))
            api_volume_free(take(&v));
    }
    return v;
}

static char *page_token(struct rpc_call *call, const struct page *p)
{
    return rpc_dup(call, p->count > p->max ? str_of(p->entries[p->max - 1].id) : STR_NULL);
}

/* ---- volumes ----------------------------------------------------------------------------------------------------- */

static Csi__V1__ListVolumesResponse__Entry *entry_message(struct rpc_call *call, const struct api_volume *v)
{
    struct health h;
    Csi__V1__ListVolumesResponse__Entry *m = rpc_alloc(call, 1, sizeof *m);
    csi__v1__list_volumes_response__entry__init(m);
    m->volume = volume_on_node(call, v->volume_id, v->capacity_bytes, v->node);
    m->status = rpc_alloc(call, 1, sizeof *m->status);
    csi__v1__list_volumes_response__volume_status__init(m->status);
    health_of(v, &h);
    m->status->volume_condition = health_condition(call, &h);
    return m;
}

HANDLER(control_list)
{
    struct control *c = ctx;
    const Csi__V1__ListVolumesRequest *q = (const Csi__V1__ListVolumesRequest *)request;
    Csi__V1__ListVolumesResponse *p = (Csi__V1__ListVolumesResponse *)reply;
    auto_page page = NULL;
    int r = page_read(c, q->max_entries, q->starting_token, &page, err);
    if (r < 0)
        return r;
    p->entries = rpc_alloc(call, page->count, sizeof *p->entries);
    for (struct api_volume *v; (v = page_next(c, page)); api_volume_free(v))
        p->entries[p->n_entries++] = entry_message(call, v);
    p->next_token = page_token(call, page);
    return 0;
}

static int find_health(struct control *c, const char *id, struct api_volume **ret, struct health *ret_health,
                       struct err *err)
{
    int r = volume_find(c, id, ret, err);
    if (r == 0)
        health_of(*ret, ret_health);
    return r;
}

HANDLER(control_get)
{
    struct control *c = ctx;
    const Csi__V1__ControllerGetVolumeRequest *q = (const Csi__V1__ControllerGetVolumeRequest *)request;
    Csi__V1__ControllerGetVolumeResponse *p = (Csi__V1__ControllerGetVolumeResponse *)reply;
    struct health h;
    auto_api_volume v = NULL;
    int r = find_health(c, q->volume_id, &v, &h, err);
    if (r < 0)
        return r;
    p->volume = volume_on_node(call, v->volume_id, v->capacity_bytes, v->node);
    p->status = rpc_alloc(call, 1, sizeof *p->status);
    csi__v1__controller_get_volume_response__volume_status__init(p->status);
    p->status->volume_condition = health_condition(call, &h);
    return 0;
}

/* ---- health, as CSI 1.13 asks for it ----------------------------------------------------------------------------- */

HANDLER(control_list_health)
{
    struct control *c = ctx;
    const Csi__V1__ControllerListVolumeHealthRequest *q = (const Csi__V1__ControllerListVolumeHealthRequest *)request;
    Csi__V1__ControllerListVolumeHealthResponse *p = (Csi__V1__ControllerListVolumeHealthResponse *)reply;
    auto_page page = NULL;
    int r = page_read(c, q->max_entries, q->starting_token, &page, err);
    if (r < 0)
        return r;
    p->entries = rpc_alloc(call, page->count, sizeof *p->entries);
    for (struct api_volume *v; (v = page_next(c, page)); api_volume_free(v)) {
        struct health h;
        health_of(v, &h);
        if (h.count > 0)
            p->entries[p->n_entries++] = health_message(call, v->volume_id, &h);
    }
    p->next_token = page_token(call, page);
    return 0;
}

HANDLER(control_get_health)
{
    struct control *c = ctx;
    const Csi__V1__ControllerGetVolumeHealthRequest *q = (const Csi__V1__ControllerGetVolumeHealthRequest *)request;
    Csi__V1__ControllerGetVolumeHealthResponse *p = (Csi__V1__ControllerGetVolumeHealthResponse *)reply;
    struct health h;
    auto_api_volume v = NULL;
    int r = find_health(c, q->volume_id, &v, &h, err);
    if (r < 0)
        return r;
    p->volume_health = health_message(call, v->volume_id, &h);
    return 0;
}
