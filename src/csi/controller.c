/* SPDX-License-Identifier: Apache-2.0 */
#include "csi/caps.h"
#include "request.h"
#include <inttypes.h>

static Csi__V1__Volume *volume_message(struct rpc_call *call, const struct csi_volume *v)
{
    Csi__V1__Volume *m = message_new(call, Csi__V1__Volume, csi__v1__volume__init);
    m->volume_id = rpc_dup(call, str_of(v->id));
    m->capacity_bytes = (int64_t)v->capacity_bytes;
    m->accessible_topology = rpc_alloc(call, 1, sizeof *m->accessible_topology);
    m->accessible_topology[0] = topology_of_node(call, v->node);
    m->n_accessible_topology = 1;
    return m;
}

/* ---- create and delete ------------------------------------------------------------------------------------------- */

static struct csi_place *places_of(struct rpc_call *call, Csi__V1__Topology *const *topologies, size_t count)
{
    struct csi_place *places = rpc_alloc(call, count, sizeof *places);
    for (size_t i = 0; i < count; i++)
        places[i] = topology_place(topologies[i]);
    return places;
}

static int make_spec(const struct csi_controller_ops *ops, const struct csi_create *c,
                     const Csi__V1__CapacityRange *range, uint64_t *ret_limit, struct spec **ret, struct err *err)
{
    auto_spec s = spec_new();
    s->in_cluster = ops->in_cluster;
    int r = pairs_apply(s, c->parameters, ops->set_parameter, err);
    if (r == 0)
        r = pairs_apply(s, c->mutable_parameters, spec_modify, err);
    if (r == 0)
        r = spec_check(s, err);
    if (r == 0)
        r = spec_check_served(s, err);
    if (r == 0)
        r = caps_size(range, max_u64(s->params.min_volume_bytes, SPEC_BYTES_MIN), s->params.max_volume_bytes,
                      &s->capacity_bytes, ret_limit, err);
    if (r < 0)
        return r;
    s->name = str_dup(str_of(c->name));
    *ret = take(&s);
    return 0;
}

HANDLER(controller_create, CreateVolume)
{
    const Csi__V1__TopologyRequirement *t = q->accessibility_requirements;
    struct csi_create c = {.name = q->name,
                           .parameters = pairs_of(call, q, parameters),
                           .mutable_parameters = pairs_of(call, q, mutable_parameters)};
    struct csi_volume v;
    auto_spec spec = NULL;
    if (t) {
        c.preferred = places_of(call, t->preferred, c.preferred_count = t->n_preferred);
        c.requisite = places_of(call, t->requisite, c.requisite_count = t->n_requisite);
    }
    int r = create_check(q, err);
    if (r == 0)
        r = make_spec(s->controller, &c, q->capacity_range, &c.limit_bytes, &spec, err);
    c.spec = spec;
    if (r == 0)
        r = s->controller->create(s->ctx, call, &c, &v, err);
    if (r == 0)
        p->volume = volume_message(call, &v);
    return r;
}

HANDLER(controller_delete, DeleteVolume)
{
    struct volume_id id;
    int r = need_id(q->volume_id, &id, err);
    if (r == -ERR_NOT_FOUND)
        return 0;
    return r < 0 ? r : s->controller->delete (s->ctx, call, &id, err);
}

/* ---- validate, expand, modify ------------------------------------------------------------------------------------ */

static void confirm(struct rpc_call *call, const Csi__V1__ValidateVolumeCapabilitiesRequest *q,
                    Csi__V1__ValidateVolumeCapabilitiesResponse *p)
{
    typedef Csi__V1__ValidateVolumeCapabilitiesResponse__Confirmed__VolumeContextEntry context_entry;
    Csi__V1__ValidateVolumeCapabilitiesResponse__Confirmed *c =
        message_new(call, Csi__V1__ValidateVolumeCapabilitiesResponse__Confirmed,
                    csi__v1__validate_volume_capabilities_response__confirmed__init);
    c->n_volume_capabilities = q->n_volume_capabilities;
    c->volume_capabilities = q->volume_capabilities; /* lives as long as the call */
    c->volume_context = rpc_alloc(call, q->n_volume_context, sizeof *c->volume_context);
    c->n_volume_context = q->n_volume_context;
    for (size_t i = 0; i < q->n_volume_context; i++) {
        context_entry *e = c->volume_context[i] = rpc_alloc(call, 1, sizeof *e);
        csi__v1__validate_volume_capabilities_response__confirmed__volume_context_entry__init(e);
        e->key = q->volume_context[i]->key;
        e->value = q->volume_context[i]->value;
    }
    p->confirmed = c;
}

static int get_volume(const struct csi_service *s, struct rpc_call *call, const char *id_text, struct csi_volume *ret,
                      struct health *ret_health, struct err *err)
{
    struct volume_id id;
    int r = need_id(id_text, &id, err);
    return r < 0 ? r : s->controller->get(s->ctx, call, &id, ret, ret_health, err);
}

HANDLER(controller_validate, ValidateVolumeCapabilities)
{
    struct csi_volume v;
    struct health h;
    struct err why;
    auto_spec trial = spec_new();
    int r = need_field(q->volume_id, "volume_id", err);
    if (r == 0 && q->n_volume_capabilities == 0)
        r = err_set(err, ERR_INVALID, "volume_capabilities is missing");
    if (r == 0)
        r = get_volume(s, call, q->volume_id, &v, &h, err);
    if (r < 0)
        return r;
    r = caps_check_all(q->volume_capabilities, q->n_volume_capabilities, &why);
    if (r == 0)
        r = pairs_apply(trial, pairs_of(call, q, parameters), s->controller->set_parameter, &why);
    if (r == 0)
        r = pairs_apply(trial, pairs_of(call, q, mutable_parameters), spec_modify, &why);
    if (r < 0)
        p->message = rpc_dup(call, str_of(why.text));
    else
        confirm(call, q, p);
    return 0;
}

HANDLER(controller_expand, ControllerExpandVolume)
{
    struct volume_id id;
    uint64_t bytes;
    bool on_node;
    int r = need_field(q->volume_id, "volume_id", err);
    if (r == 0 && !q->capacity_range)
        r = err_set(err, ERR_INVALID, "capacity_range is missing");
    if (r == 0 && q->volume_capability)
        r = caps_check(q->volume_capability, err);
    if (r == 0)
        r = need_id(q->volume_id, &id, err);
    if (r == 0)
        r = s->controller->expand(s->ctx, &id, q->capacity_range, &bytes, &on_node, err);
    if (r < 0)
        return r;
    p->capacity_bytes = (int64_t)bytes;
    p->node_expansion_required = on_node;
    return 0;
}

HANDLER(controller_modify, ControllerModifyVolume)
{
    struct volume_id id;
    int r = need_id(q->volume_id, &id, err);
    return r < 0 ? r : s->controller->modify(s->ctx, &id, pairs_of(call, q, mutable_parameters), err);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

enum { PAGE_MAX = 1000 }; /* volumes, some 300 bytes each: below the 4 MiB that callers accept */

/* A token is the id of the last volume of a page: it stays valid when that volume is deleted. */
static int list_page(const struct csi_service *s, struct csi_page *page, int32_t max_entries, const char *token,
                     char **ret_token, struct err *err)
{
    if (max_entries < 0)
        return err_set(err, ERR_INVALID, "max_entries %" PRId32 " is negative", max_entries);
    if (token[0] && !volume_id_parse(str_of(token), &page->after))
        return csi_token_invalid(token, err);
    page->max = max_entries > 0 ? min_u64((uint64_t)max_entries, PAGE_MAX) : PAGE_MAX;
    int r = s->controller->list(s->ctx, page, err);
    *ret_token = rpc_dup(page->call, str_of(page->next.text));
    return r;
}

static void add_volume(struct csi_page *page, const struct csi_volume *v, const struct health *h)
{
    Csi__V1__ListVolumesResponse *p = page->reply;
    Csi__V1__ListVolumesResponse__Entry *m =
        message_new(page->call, Csi__V1__ListVolumesResponse__Entry, csi__v1__list_volumes_response__entry__init);
    m->volume = volume_message(page->call, v);
    m->status = message_new(page->call, typeof(*m->status), csi__v1__list_volumes_response__volume_status__init);
    m->status->volume_condition = health_condition(page->call, h);
    if (!p->entries)
        p->entries = rpc_alloc(page->call, page->max, sizeof *p->entries);
    p->entries[p->n_entries++] = m;
}

HANDLER(controller_list, ListVolumes)
{
    struct csi_page page = {.call = call, .reply = p, .add = add_volume};
    return list_page(s, &page, q->max_entries, q->starting_token, &p->next_token, err);
}

static void add_unhealthy(struct csi_page *page, const struct csi_volume *v, const struct health *h)
{
    Csi__V1__ControllerListVolumeHealthResponse *p = page->reply;
    if (h->count == 0)
        return;
    if (!p->entries)
        p->entries = rpc_alloc(page->call, page->max, sizeof *p->entries);
    p->entries[p->n_entries++] = health_message(page->call, v->id, h);
}

HANDLER(controller_list_health, ControllerListVolumeHealth)
{
    struct csi_page page = {.call = call, .reply = p, .add = add_unhealthy};
    return list_page(s, &page, q->max_entries, q->starting_token, &p->next_token, err);
}

/* ---- one volume -------------------------------------------------------------------------------------------------- */

HANDLER(controller_get, ControllerGetVolume)
{
    struct csi_volume v;
    struct health h;
    int r = get_volume(s, call, q->volume_id, &v, &h, err);
    if (r < 0)
        return r;
    p->volume = volume_message(call, &v);
    p->status = message_new(call, typeof(*p->status), csi__v1__controller_get_volume_response__volume_status__init);
    p->status->volume_condition = health_condition(call, &h);
    return 0;
}

HANDLER(controller_get_health, ControllerGetVolumeHealth)
{
    struct csi_volume v;
    struct health h;
    int r = get_volume(s, call, q->volume_id, &v, &h, err);
    if (r == 0)
        p->volume_health = health_message(call, v.id, &h);
    return r;
}

/* ---- capacity ---------------------------------------------------------------------------------------------------- */

static Google__Protobuf__Int64Value *int64_value(struct rpc_call *call, uint64_t n)
{
    Google__Protobuf__Int64Value *v =
        message_new(call, Google__Protobuf__Int64Value, google__protobuf__int64_value__init);
    v->value = (int64_t)min_u64(n, INT64_MAX);
    return v;
}

HANDLER(controller_capacity, GetCapacity)
{
    struct csi_place where = q->accessible_topology ? topology_place(q->accessible_topology) : (struct csi_place){0};
    struct csi_capacity c = {0};
    struct err why;
    auto_spec class = spec_new();
    class->in_cluster = s->controller->in_cluster;
    int r = pairs_apply(class, pairs_of(call, q, parameters), s->controller->set_parameter, err);
    if (r == 0)
        r = s->controller->capacity(s->ctx, class, q->accessible_topology ? &where : NULL, &c, err);
    if (r < 0)
        return r;
    uint64_t least = max_u64(class->params.min_volume_bytes, SPEC_BYTES_MIN);
    uint64_t most = c.largest_bytes;
    if (class->params.max_volume_bytes)
        most = min_u64(most, class->params.max_volume_bytes);
    bool fits = c.is_accessible && most >= least;
    if (q->n_volume_capabilities > 0)
        fits = fits && caps_check_all(q->volume_capabilities, q->n_volume_capabilities, &why) == 0;
    p->available_capacity = fits ? (int64_t)min_u64(c.available_bytes, INT64_MAX) : 0;
    p->maximum_volume_size = int64_value(call, fits ? most : 0);
    p->minimum_volume_size = int64_value(call, least);
    return 0;
}

/* ---- the service ------------------------------------------------------------------------------------------------- */

HANDLER(controller_capabilities, ControllerGetCapabilities)
{
#define CAN(type) CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__##type
    static const Csi__V1__ControllerServiceCapability__RPC__Type types[] = {
        CAN(CREATE_DELETE_VOLUME), CAN(LIST_VOLUMES),
        CAN(GET_CAPACITY),         CAN(EXPAND_VOLUME),
        CAN(VOLUME_CONDITION),     CAN(GET_VOLUME),
        CAN(MODIFY_VOLUME),        CAN(GET_VOLUME_HEALTH),
        CAN(LIST_VOLUME_HEALTH),   CAN(SINGLE_NODE_MULTI_WRITER),
    };
#undef CAN
    p->n_capabilities = countof(types);
    p->capabilities = rpc_alloc(call, countof(types), sizeof *p->capabilities);
    for (size_t i = 0; i < countof(types); i++) {
        Csi__V1__ControllerServiceCapability *c = p->capabilities[i] =
            message_new(call, Csi__V1__ControllerServiceCapability, csi__v1__controller_service_capability__init);
        c->type_case = CSI__V1__CONTROLLER_SERVICE_CAPABILITY__TYPE_RPC;
        c->rpc = message_new(call, typeof(*c->rpc), csi__v1__controller_service_capability__rpc__init);
        c->rpc->type = types[i];
    }
    return 0;
}

#define CONTROLLER(name, type, handler) METHOD("Controller", name, type, handler, false)
const struct rpc_method controller_methods[CONTROLLER_METHODS] = {
    CONTROLLER("CreateVolume", create_volume, controller_create),
    CONTROLLER("DeleteVolume", delete_volume, controller_delete),
    CONTROLLER("ValidateVolumeCapabilities", validate_volume_capabilities, controller_validate),
    CONTROLLER("ListVolumes", list_volumes, controller_list),
    CONTROLLER("ControllerListVolumeHealth", controller_list_volume_health, controller_list_health),
    CONTROLLER("ControllerGetVolumeHealth", controller_get_volume_health, controller_get_health),
    CONTROLLER("GetCapacity", get_capacity, controller_capacity),
    CONTROLLER("ControllerGetCapabilities", controller_get_capabilities, controller_capabilities),
    CONTROLLER("ControllerExpandVolume", controller_expand_volume, controller_expand),
    CONTROLLER("ControllerGetVolume", controller_get_volume, controller_get),
    CONTROLLER("ControllerModifyVolume", controller_modify_volume, controller_modify),
};
