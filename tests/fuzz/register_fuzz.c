/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes on the registration socket; the first byte selects one of the two messages. An accepted message has
 * terminated texts, and survives packing and unpacking. In any state of the kubelet, a live registration is kept. A
 * dead one that it does not know is replaced at once, and a due one stays due. */
#include "fuzz.h"
#include "register.h"
#include <proto/pluginregistration.pb-c.h>

static void check_message(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t len)
{
    struct err err = {0};
    if (rpc_protobuf_check(type, bytes, len, &err) < 0) {
        assert(err.code == ERR_INVALID && str_is_utf8(str_of(err.text)));
        return;
    }
    ProtobufCMessage *m = protobuf_c_message_unpack(type, NULL, len, bytes);
    if (!m)
        return;
    if (type == &pluginregistration__registration_status__descriptor)
        assert(str_is_utf8(str_of(((Pluginregistration__RegistrationStatus *)m)->error)));
    size_t packed_len = protobuf_c_message_get_packed_size(m);
    auto_mem uint8_t *packed = xcalloc(packed_len + 1, 1);
    protobuf_c_message_pack(m, packed);
    int r = rpc_protobuf_check(type, packed, packed_len, &err);
    assert(r == 0);
    protobuf_c_message_free_unpacked(m, NULL);
}

static void check_view(struct registration_view v)
{
    bool is_due = registration_is_due(&v);
    assert(v.place != PLACE_LIVE || !is_due);
    assert(v.place != PLACE_EMPTY || is_due);
    bool is_known = v.confirmed != CONFIRMED_NO;
    assert(v.place != PLACE_DEAD || is_known || is_due);
    assert(v.place != PLACE_OURS || v.refused || !is_known || !is_due);
    v.quiet_ns = v.published_ns = UINT64_MAX;
    assert(!is_due || registration_is_due(&v));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct registration_view v = {0};
    if (len == 0)
        return 0;
    check_message(bytes[0] & 1 ? &pluginregistration__registration_status__descriptor
                               : &pluginregistration__info_request__descriptor,
                  bytes + 1, len - 1);
    if (len < 12)
        return 0;
    memcpy(&v.quiet_ns, bytes + 4, 8);
    v.published_ns = v.quiet_ns;
    v.refusals = bytes[1];
    v.place = (enum registration_place)(bytes[2] % 4);
    v.confirmed = (enum registration_confirmed)(bytes[3] % 3);
    v.refused = bytes[3] & 0x80;
    v.was_called = bytes[3] & 0x40;
    check_view(v);
    return 0;
}
