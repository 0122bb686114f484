/* SPDX-License-Identifier: Apache-2.0 */
/* A request of any bytes on the socket: the first byte selects the call. An accepted message survives unpacking,
 * packing and unpacking. Every question about its fields has an answer or an error. */
#include "csi/caps.h"
#include "csi/service.h"
#include "fuzz.h"
#include "request.h"

static void refused(int r, const struct err *err)
{
    assert(r < 0 && err->code != 0 && err->text[0] && str_is_utf8(str_of(err->text)));
}

static void check_capability(const Csi__V1__VolumeCapability *c)
{
    struct err err = {0};
    bool has = false;
    uint32_t group = 0;
    int r = c ? caps_check(c, &err) : 0;
    if (!c || r < 0)
        return;
    (void)caps_is_read_only(c), (void)caps_is_shared(c);
    r = caps_group(c, &has, &group, &err);
    if (r < 0)
        refused(r, &err);
    else
        assert(has == (c->mount->volume_mount_group[0] != '\0') && group != UINT32_MAX);
}

static void check_range(const Csi__V1__CapacityRange *range)
{
    struct err err = {0};
    uint64_t size, limit;
    int r = caps_size(range, 1 << 20, UINT64_C(1) << 50, &size, &limit, &err);
    if (r < 0)
        refused(r, &err);
    else
        assert(size >= 1 << 20 && size <= UINT64_C(1) << 50 && (limit == 0 || size <= limit));
}

static int apply(struct spec *s, struct str key, struct str value, bool is_mutable, struct err *err)
{
    return is_mutable ? spec_modify(s, key, value, err) : spec_set(s, key, value, err);
}

static void check_create(const Csi__V1__CreateVolumeRequest *q)
{
    struct err err = {0};
    auto_spec s = spec_new();
    const Csi__V1__TopologyRequirement *t = q->accessibility_requirements;
    int r = create_check(q, &err);
    for (size_t i = 0; r == 0 && i < q->n_volume_capabilities; i++)
        check_capability(q->volume_capabilities[i]);
    for (size_t i = 0; t && i < t->n_requisite; i++)
        (void)topology_place(t->requisite[i]);
    for (size_t i = 0; r == 0 && i < q->n_parameters; i++)
        r = apply(s, str_of(q->parameters[i]->key), str_of(q->parameters[i]->value), false, &err);
    for (size_t i = 0; r == 0 && i < q->n_mutable_parameters; i++)
        r = apply(s, str_of(q->mutable_parameters[i]->key), str_of(q->mutable_parameters[i]->value), true, &err);
    if (r == 0)
        r = spec_check(s, &err);
    if (r == 0)
        r = spec_check_served(s, &err);
    if (r < 0)
        refused(r, &err);
    check_range(q->capacity_range);
}

static void check_fields(const ProtobufCMessage *m)
{
    if (m->descriptor == &csi__v1__create_volume_request__descriptor)
        check_create((const Csi__V1__CreateVolumeRequest *)m);
    else if (m->descriptor == &csi__v1__node_publish_volume_request__descriptor)
        check_capability(((const Csi__V1__NodePublishVolumeRequest *)m)->volume_capability);
    else if (m->descriptor == &csi__v1__node_stage_volume_request__descriptor)
        check_capability(((const Csi__V1__NodeStageVolumeRequest *)m)->volume_capability);
    else if (m->descriptor == &csi__v1__node_expand_volume_request__descriptor)
        check_range(((const Csi__V1__NodeExpandVolumeRequest *)m)->capacity_range);
    else if (m->descriptor == &csi__v1__controller_expand_volume_request__descriptor)
        check_range(((const Csi__V1__ControllerExpandVolumeRequest *)m)->capacity_range);
}

/* Unknown fields are skipped here and kept there: what is known is the same. */
static void check_round(const ProtobufCMessage *m)
{
    size_t len = protobuf_c_message_get_packed_size(m);
    uint8_t *packed = xcalloc(len + 1, 1);
    size_t written = protobuf_c_message_pack(m, packed);
    assert(written == len);
    ProtobufCMessage *again = protobuf_c_message_unpack(m->descriptor, NULL, len, packed);
    assert(again && protobuf_c_message_get_packed_size(again) == len);
    protobuf_c_message_free_unpacked(again, NULL);
    free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const struct csi_controller_ops controller;
    static const struct csi_node_ops node;
    struct csi_service s = {.controller = &controller, .node = &node};
    struct err err = {0};
    if (len == 0)
        return 0;
    csi_service_init(&s);
    const struct rpc_method *method = &s.methods[bytes[0] % s.method_count];
    int r = rpc_protobuf_check(method->request, bytes + 1, len - 1, &err);
    if (r < 0) {
        refused(r, &err);
        return 0;
    }
    ProtobufCMessage *m = protobuf_c_message_unpack(method->request, NULL, len - 1, bytes + 1);
    if (!m)
        return 0;
    check_fields(m);
    check_round(m);
    protobuf_c_message_free_unpacked(m, NULL);
    return 0;
}
