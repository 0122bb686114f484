/* SPDX-License-Identifier: Apache-2.0 */
/* protobuf.h - packs a message for gRPC. home: any thread. */
#pragma once

#include <grpc/grpc.h>
#include <protobuf-c/protobuf-c.h>

grpc_byte_buffer *protobuf_pack(const ProtobufCMessage *m); /* the caller destroys it */
