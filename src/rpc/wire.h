/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h - a message as gRPC sends it. home: any thread. */
#pragma once

#include <grpc/grpc.h>
#include <protobuf-c/protobuf-c.h>

grpc_byte_buffer *wire_pack(const ProtobufCMessage *m); /* the caller destroys it */
