/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"
#include "progress.h"
#include "util/log.h"
#include <stdio.h>

/* ---- create ------------------------------------------------------------------------------------------------------ */

static int check_create(struct driver *d, const Csi__V1__CreateVolumeRequest *q, struct err *err)
{
    int r = create_check(q, err);
    if (r < 0)
        return r;
    const Csi__V1__TopologyRequirement *t = q->accessibility_requirements;
    for (size_t i = 0; t && i < t->n_requisite; i++)
        if (topology_is_here(d, t->requisite[i]))
            return 0;
    if (t && t->n_requisite > 0)
        return err_set(err, ERR_NO_SPACE, "the volume must not be on node '%s', and there is no other here",
                       d->node_id);
    return 0;
}

static int make_spec(struct rpc_call *call, const Csi__V1__CreateVolumeRequest *q, uint64_t *ret_limit,
                     struct spec **ret, struct err *err)
{
    auto_spec s = spec_new();
    int r = pairs_apply(s, pairs_of(call, q, parameters), q->n_parameters, spec_set, err);
    if (r == 0)
        r = pairs_apply(s, pairs_of(call, q, mutable_parameters), q->n_mutable_parameters, spec_modify, err);
    if (r == 0)
        r = spec_check(s, err);
    if (r == 0)
        r = spec_check_served(s, err);
    if (r == 0)
        r = caps_size(q->capacity_range, max_u64(s->params.min_volume_bytes, DISK_BYTES_MIN),
                      s->params.max_volume_bytes, &s->capacity_bytes, ret_limit, err);
    if (r < 0)
        return r;
    s->name = str_dup(str_of(q->name));
    *ret = take(&s);
    return 0;
}

/* A name is one volume, in whatever pool it was made; in one that is not here, nobody can look. */
static int check_other_pools(struct driver *d, const struct space *here, const char *name, struct err *err)
{
    for (size_t i = 0; i < d->space_count; i++) {
        auto_volume v = NULL;
        if (d->spaces[i] == here)
            continue;
        int r = space_find_name(d->spaces[i], str_of(name), &v, err);
        if (r == 0)
            return err_set(err, ERR_EXISTS, "volume '%s' is there already, in pool '%s'", name,
                           space_name(d->spaces[i]));
        if (r != -ERR_NOT_FOUND && r != -ERR_ABSENT)
            return r;
    }
    return 0;
}

/* A blank volume has nothing to wait for; of the others the hydration begins now,
 * and NodePublishVolume waits for it. */
static int begin_hydration(struct driver *d, const struct volume *v, struct err *err)
{
    char text[HEALTH_TEXT_MAX];
    bool failed;
    struct job_view view;
    if (data_is_whole(v, text, &failed))
        return 0;
    return driver_want_job(d, v, JOB_HYDRATE, false, &view, err);
}

HANDLER(controller_create)
{
    struct driver *d = ctx;
    const Csi__V1__CreateVolumeRequest *q = (const Csi__V1__CreateVolumeRequest *)request;
    Csi__V1__CreateVolumeResponse *p = (Csi__V1__CreateVolumeResponse *)reply;
    auto_spec want = NULL;
    auto_claim claim = {0};
    auto_volume v = NULL;
    struct space *s;
    uint64_t limit;
    int r = check_create(d, q, err);
    if (r == 0)
        r = make_spec(call, q, &limit, &want, err);
    if (r == 0)
        r = driver_space_named(d, want->params.pool, &s, err);
    if (r == 0)
        r = claim_take(&d->claims, rpc_text(call, "/%s", q->name), &claim, err);
    if (r == 0)
        r = check_other_pools(d, s, q->name, err);
    if (r == 0)
        r = space_create(s, want, limit, &v, err);
    if (r == 0)
        r = begin_hydration(d, v, err);
    if (r < 0)
        return r;
    log_event(LOG_INFO, "volume is there", "volume", v->spec->id, "name", q->name, "bytes",
              log_u64(v->spec->capacity_bytes), NULL);
    p->volume = volume_message(d, call, v->spec->id, v->spec->capacity_bytes);
    return 0;
}

/* ---- validate ---------------------------------------------------------------------------------------------------- */

HANDLER(controller_validate)
{
    struct driver *d = ctx;
    const Csi__V1__ValidateVolumeCapabilitiesRequest *q = (const Csi__V1__ValidateVolumeCapabilitiesRequest *)request;
    Csi__V1__ValidateVolumeCapabilitiesResponse *p = (Csi__V1__ValidateVolumeCapabilitiesResponse *)reply;
    auto_volume v = NULL;
    struct space *s;
    int r = need_field(q->volume_id, "volume_id", err);
    if (r == 0 && q->n_volume_capabilities == 0)
        r = err_set(err, ERR_INVALID, "volume_capabilities is missing");
    if (r == 0)
        r = driver_find(d, q->volume_id, &s, &v, err);
    if (r < 0)
        return r;
    validate_reply(call, q, spec_set, p);
    return 0;
}

/* ---- expand and modify ------------------------------------------------------------------------------------------- */

static int check_room(struct space *s, const struct volume *v, uint64_t size, struct err *err)
{
    struct space_usage u;
    int r = space_usage(s, &u, err);
    if (r < 0)
        return r;
    uint64_t more = size - v->spec->capacity_bytes;
    if (more <= u.available_bytes)
        return 0;
    char wanted[BYTES_TEXT_MAX], there[BYTES_TEXT_MAX];
    err_set(err, ERR_RANGE, "volume '%s': it needs %s more, pool '%s' has %s", v->spec->id, bytes_text(more, wanted),
            space_name(s), bytes_text(u.available_bytes, there));
    return err_advise(err, 2029, "delete volumes of this node, or ask for less");
}

HANDLER(controller_expand)
{
    (void)call;
    struct driver *d = ctx;
    const Csi__V1__ControllerExpandVolumeRequest *q = (const Csi__V1__ControllerExpandVolumeRequest *)request;
    Csi__V1__ControllerExpandVolumeResponse *p = (Csi__V1__ControllerExpandVolumeResponse *)reply;
    auto_volume v = NULL;
    struct space *s;
    uint64_t size, limit;
    int r = need_field(q->volume_id, "volume_id", err);
    if (r == 0 && !q->capacity_range)
        r = err_set(err, ERR_INVALID, "capacity_range is missing");
    if (r == 0 && q->volume_capability)
        r = caps_check(q->volume_capability, err);
    if (r == 0)
        r = driver_find(d, q->volume_id, &s, &v, err);
    if (r == 0)
        r = caps_size(q->capacity_range, v->spec->capacity_bytes, v->spec->params.max_volume_bytes, &size, &limit, err);
    if (r == 0 && size > v->spec->capacity_bytes)
        r = check_room(s, v, size, err);
    if (r < 0)
        return r;
    p->capacity_bytes = (int64_t)size;
    p->node_expansion_required = size > v->spec->capacity_bytes;
    return 0;
}

HANDLER(controller_modify)
{
    (void)reply;
    struct driver *d = ctx;
    const Csi__V1__ControllerModifyVolumeRequest *q = (const Csi__V1__ControllerModifyVolumeRequest *)request;
    auto_volume v = NULL;
    auto_claim claim = {0};
    struct space *s;
    int r = driver_claim(d, q->volume_id, &claim, &s, &v, err);
    if (r < 0)
        return r;
    struct space_change *changes = rpc_alloc(call, q->n_mutable_parameters, sizeof *changes);
    for (size_t i = 0; i < q->n_mutable_parameters; i++)
        changes[i] = (struct space_change){.key = str_of(q->mutable_parameters[i]->key),
                                           .value = str_of(q->mutable_parameters[i]->value)};
    return space_modify(s, str_of(q->volume_id), changes, q->n_mutable_parameters, err);
}
