/* SPDX-License-Identifier: Apache-2.0 */
/* Expands and modifies a volume that exists. Everything is checked before anything is written; the node acts on the
 * order, also after its restart. */
#include "csi/caps.h"
#include "private.h"
#include "util/log.h"

/* ---- expand ------------------------------------------------------------------------------------------------------ */

static int check_room(struct control *c, const struct api_volume *v, uint64_t size, struct err *err)
{
    char more[BYTES_TEXT_MAX], there[BYTES_TEXT_MAX];
    auto_api_pool p = NULL;
    int r = control_cached_pool(c, v->node, v->pool, &p, err);
    if (r < 0)
        return r;
    if (!p)
        return err_fail(err, ERR_AGAIN, CIS_NODE_PENDING, "volume '%s': its node %s or the pool '%s' is missing",
                        v->id.text, v->node, v->pool);
    if (size - v->capacity_bytes <= p->available_bytes)
        return 0;
    return err_fail(err, ERR_RANGE, CIS_VOLUME_GROW_LIMIT,
                    "volume '%s': cannot grow: it needs %s more, pool %s on %s has %s available", v->id.text,
                    bytes_text(size - v->capacity_bytes, more), p->pool, p->node,
                    bytes_text(p->available_bytes, there));
}

static int order_size(struct control *c, const struct api_volume *v, uint64_t size, struct err *err)
{
    json *patch = json_new_object();
    json_set_u64(patch, "spec.capacityBytes", size);
    log_event(LOG_INFO, "volume expansion requested", "volume", v->id.text, "node", v->node, "bytes", log_u64(size),
              NULL);
    return volume_patch(c, v, patch, err);
}

static int check_stays(const struct api_volume *v, struct err *err)
{
    if (!v->release_requested)
        return 0;
    return err_fail(err, ERR_BUSY, CIS_VOLUME_RELEASING, "volume '%s': being released", v->id.text);
}

/* A volume that may change, and its spec. */
static int find_to_change(struct control *c, const struct volume_id *id, struct api_volume **ret,
                          struct spec **ret_spec, struct err *err)
{
    auto_api_volume v = NULL;
    int r = volume_find(c, id, &v, err);
    if (r == 0)
        r = check_stays(v, err);
    if (r == 0)
        r = api_volume_spec(v, ret_spec, err);
    if (r == 0)
        *ret = take(&v);
    return r;
}

int control_expand(void *ctx, const struct volume_id *id, const Csi__V1__CapacityRange *range, uint64_t *ret_bytes,
                   bool *ret_on_node, struct err *err)
{
    struct control *c = ctx;
    auto_api_volume v = NULL;
    auto_spec spec = NULL;
    uint64_t size = 0, limit;
    int r = find_to_change(c, id, &v, &spec, err);
    if (r == 0)
        r = caps_size(range, v->capacity_bytes, spec->params.max_volume_bytes, &size, &limit, err);
    if (r == 0 && size > v->capacity_bytes)
        r = check_room(c, v, size, err);
    if (r == 0 && size > v->capacity_bytes)
        r = order_size(c, v, size, err);
    if (r < 0)
        return r;
    *ret_bytes = size;
    /* A repeated call requests NodeExpandVolume, which raises the quota, until the status shows the size. */
    *ret_on_node = size > v->status.capacity_bytes;
    return 0;
}

/* ---- modify ------------------------------------------------------------------------------------------------------ */

int control_modify(void *ctx, const struct volume_id *id, struct csi_pairs changes, struct err *err)
{
    struct control *c = ctx;
    auto_api_volume v = NULL;
    auto_spec spec = NULL;
    int r = find_to_change(c, id, &v, &spec, err);
    for (size_t i = 0; r == 0 && i < changes.count; i++)
        r = spec_modify(spec, str_of(changes.items[i].key), str_of(changes.items[i].value), err);
    if (r < 0)
        return r;
    json *patch = json_new_object();
    json *parameters = json_new_object();
    for (size_t i = 0; i < changes.count; i++)
        json_set_member(parameters, changes.items[i].key, json_new_str(str_of(changes.items[i].value)));
    json_set(patch, "spec.parameters", parameters);
    return volume_patch(c, v, patch, err);
}
