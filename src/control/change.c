/* SPDX-License-Identifier: Apache-2.0 */
/* What changes of a volume that exists: its size and the parameters that may. All is checked before anything is
 * written; the order is what the node goes by, also after its restart. */
#include "contract/caps.h"
#include "private.h"
#include "util/log.h"

/* ---- expand ------------------------------------------------------------------------------------------------------ */

static int check_room(struct control *c, const struct api_volume *v, uint64_t size, struct err *err)
{
    char more[BYTES_TEXT_MAX], there[BYTES_TEXT_MAX];
    auto_api_pool p = NULL;
    int r = pool_get(c, v->node, v->pool, &p, err);
    if (r < 0)
        return r;
    if (!p) {
        err_set(err, ERR_AGAIN, "volume '%s': its node %s or the pool '%s' is not there", v->volume_id, v->node,
                v->pool);
        return err_advise(err, 5107, "it is tried again");
    }
    if (size - v->capacity_bytes <= p->available_bytes)
        return 0;
    err_set(err, ERR_RANGE, "volume '%s': it needs %s more, pool %s on %s has %s", v->volume_id,
            bytes_text(size - v->capacity_bytes, more), p->pool, p->node, bytes_text(p->available_bytes, there));
    return err_advise(err, 2029, "delete volumes of this node, or ask for less");
}

static int order_size(struct control *c, const struct api_volume *v, uint64_t size, struct err *err)
{
    json *patch = json_new_object();
    json_set_u64(patch, "spec.capacityBytes", size);
    log_event(LOG_INFO, "volume is to grow", "volume", v->volume_id, "node", v->node, "bytes", log_u64(size), NULL);
    return volume_patch(c, v, patch, err);
}

static int check_stays(const struct api_volume *v, struct err *err)
{
    if (!v->release_requested)
        return 0;
    err_set(err, ERR_BUSY, "volume '%s' is being released", v->volume_id);
    return err_advise(err, 4030, "it does not change any more");
}

/* A volume that may change, and what it is. */
static int find_to_change(struct control *c, const char *id, struct api_volume **ret, struct spec **ret_spec,
                          struct err *err)
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

HANDLER(control_expand)
{
    (void)call;
    struct control *c = ctx;
    const Csi__V1__ControllerExpandVolumeRequest *q = (const Csi__V1__ControllerExpandVolumeRequest *)request;
    Csi__V1__ControllerExpandVolumeResponse *p = (Csi__V1__ControllerExpandVolumeResponse *)reply;
    auto_api_volume v = NULL;
    auto_spec spec = NULL;
    uint64_t size, limit;
    int r = need_field(q->volume_id, "volume_id", err);
    if (r == 0 && !q->capacity_range)
        r = err_set(err, ERR_INVALID, "capacity_range is missing");
    if (r == 0 && q->volume_capability)
        r = caps_check(q->volume_capability, err);
    if (r == 0)
        r = find_to_change(c, q->volume_id, &v, &spec, err);
    if (r == 0)
        r = caps_size(q->capacity_range, v->capacity_bytes, spec->params.max_volume_bytes, &size, &limit, err);
    if (r == 0 && size > v->capacity_bytes)
        r = check_room(c, v, size, err);
    if (r == 0 && size > v->capacity_bytes)
        r = order_size(c, v, size, err);
    if (r < 0)
        return r;
    p->capacity_bytes = (int64_t)size;
    /* The node raises the quota in NodeExpandVolume; until it said so, a call that is repeated asks for it again. */
    p->node_expansion_required = size > v->status.capacity_bytes;
    return 0;
}

/* ---- modify ------------------------------------------------------------------------------------------------------ */

HANDLER(control_modify)
{
    (void)reply;
    struct control *c = ctx;
    const Csi__V1__ControllerModifyVolumeRequest *q = (const Csi__V1__ControllerModifyVolumeRequest *)request;
    auto_api_volume v = NULL;
    auto_spec spec = NULL;
    int r = find_to_change(c, q->volume_id, &v, &spec, err);
    const struct pair *pairs = pairs_of(call, q, mutable_parameters);
    if (r == 0)
        r = pairs_apply(spec, pairs, q->n_mutable_parameters, spec_modify, err);
    if (r < 0)
        return r;
    json *patch = json_new_object();
    json *parameters = json_new_object();
    for (size_t i = 0; i < q->n_mutable_parameters; i++)
        json_set_member(parameters, pairs[i].key, json_new_str(str_of(pairs[i].value)));
    json_set(patch, "spec.parameters", parameters);
    return volume_patch(c, v, patch, err);
}

/* ---- validate ---------------------------------------------------------------------------------------------------- */

HANDLER(control_validate)
{
    struct control *c = ctx;
    const Csi__V1__ValidateVolumeCapabilitiesRequest *q = (const Csi__V1__ValidateVolumeCapabilitiesRequest *)request;
    auto_api_volume v = NULL;
    int r = need_field(q->volume_id, "volume_id", err);
    if (r == 0 && q->n_volume_capabilities == 0)
        r = err_set(err, ERR_INVALID, "volume_capabilities is missing");
    if (r == 0)
        r = volume_find(c, q->volume_id, &v, err);
    if (r == 0)
        validate_reply(call, q, spec_set_parameter, (Csi__V1__ValidateVolumeCapabilitiesResponse *)reply);
    return r;
}
