/* SPDX-License-Identifier: Apache-2.0 */
/* client.h - makes unary gRPC calls and waits for their replies, as the kubelet does: for the demo and for tests.
 * home: one thread; calls block. */
#pragma once

#include "util/err.h"
#include <protobuf-c/protobuf-c.h>

struct rpc_client;

/* `path` is a unix socket. Each call opens a connection. */
struct rpc_client *rpc_client_new(const char *path);
void rpc_client_free(struct rpc_client *c);
DEFINE_AUTO(rpc_client, struct rpc_client, rpc_client_free)
#define auto_rpc_client auto_with(auto_clean_rpc_client) struct rpc_client *

/* Calls `method` ("/csi.v1.Identity/Probe"). On success *ret is a message of `reply_type`, freed by the caller with
 * protobuf_c_message_free_unpacked. On failure err has the server's own sentence, and *ret_status the
 * gRPC status code: 14 (UNAVAILABLE) without a server. */
must_check int rpc_call(struct rpc_client *c, const char *method, const ProtobufCMessage *request,
                        const ProtobufCMessageDescriptor *reply_type, uint64_t timeout_ns, ProtobufCMessage **ret,
                        int *ret_status, struct err *err);
