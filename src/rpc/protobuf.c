/* SPDX-License-Identifier: Apache-2.0 */
/* protobuf-c returns C strings of any bytes. A NUL would silently shorten an id, and invalid UTF-8 would reach JSON and
 * logs. So the strings are checked before they are unpacked. */
#include "protobuf.h"
#include "server.h"

enum proto_wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

enum { DEPTH_MAX = 16 }; /* CSI's deepest message is 4 */

struct proto_reader {
    const uint8_t *at, *end;
};

static bool read_varint(struct proto_reader *r, uint64_t *ret)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        uint8_t byte = *r->at++;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) {
            *ret = value;
            return true;
        }
    }
    return false;
}

static bool skip(struct proto_reader *r, uint64_t len)
{
    if (len > (uint64_t)(r->end - r->at))
        return false;
    r->at += len;
    return true;
}

static int malformed(const ProtobufCMessageDescriptor *type, struct err *err)
{
    return err_set(err, ERR_INVALID, "the request is not a '%s': malformed protobuf", type->name);
}

static int check(const ProtobufCMessageDescriptor *type, struct proto_reader r, unsigned depth, struct err *err);

static int check_bytes(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
                       struct proto_reader r, unsigned depth, struct err *err)
{
    if (!field)
        return 0;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return check(field->descriptor, r, depth + 1, err);
    if (field->type == PROTOBUF_C_TYPE_STRING && !str_is_utf8((struct str){(const char *)r.at, (size_t)(r.end - r.at)}))
        return err_set(err, ERR_INVALID, "'%s' of '%s' is not UTF-8 text without NUL", field->name, type->name);
    return 0;
}

static int check(const ProtobufCMessageDescriptor *type, struct proto_reader r, unsigned depth, struct err *err)
{
    if (depth > DEPTH_MAX)
        return malformed(type, err);
    while (r.at < r.end) {
        uint64_t tag, n;
        if (!read_varint(&r, &tag) || tag >> 3 == 0 || tag >> 32 != 0)
            return malformed(type, err);
        enum proto_wire_type wire = tag & 7;
        if (wire == WIRE_VARINT ? read_varint(&r, &n) : wire == WIRE_64 ? skip(&r, 8) : wire == WIRE_32 && skip(&r, 4))
            continue;
        const uint8_t *start;
        if (wire != WIRE_BYTES || !read_varint(&r, &n) || (start = r.at, !skip(&r, n)))
            return malformed(type, err);
        const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3));
        int e = check_bytes(type, field, (struct proto_reader){start, r.at}, depth, err);
        if (e < 0)
            return e;
    }
    return 0;
}

int rpc_protobuf_check(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t len, struct err *err)
{
    return check(type, (struct proto_reader){bytes, bytes + len}, 0, err);
}

grpc_byte_buffer *protobuf_pack(const ProtobufCMessage *m)
{
    grpc_slice bytes = grpc_slice_malloc(protobuf_c_message_get_packed_size(m));
    protobuf_c_message_pack(m, GRPC_SLICE_START_PTR(bytes));
    grpc_byte_buffer *b = grpc_raw_byte_buffer_create(&bytes, 1);
    grpc_slice_unref(bytes);
    return b;
}
