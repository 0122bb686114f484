/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/client.h"
#include "protobuf.h"
#include "rpc/server.h"
#include "util/str.h"
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>

struct rpc_client {
    char *target;                 /* owned: "unix:/path" */
    grpc_completion_queue *queue; /* owned; each call waits for its own completion */
};

struct reply {
    grpc_byte_buffer *message; /* owned */
    grpc_metadata_array head, trail;
    grpc_status_code status;
    grpc_slice details;
};

struct rpc_client *rpc_client_new(const char *path)
{
    struct rpc_client *c = xcalloc(1, sizeof *c);
    c->target = str_dupf("unix:%s", path);
    grpc_init();
    c->queue = grpc_completion_queue_create_for_pluck(NULL);
    return c;
}

void rpc_client_free(struct rpc_client *c)
{
    if (!c)
        return;
    grpc_completion_queue_shutdown(c->queue);
    grpc_completion_queue_destroy(c->queue);
    grpc_shutdown();
    free(c->target);
    free(c);
}

/* Each call has its own channel. gRPC reconnects a kept channel only while a call polls, with a delay of 5 s, so a
 * restarted server would be found late. */
static grpc_channel *channel_open(const struct rpc_client *c)
{
    grpc_arg own_pool = {
        .type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, .value.integer = 1};
    grpc_channel_args args = {.num_args = 1, .args = &own_pool};
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(c->target, credentials, &args);
    grpc_channel_credentials_release(credentials);
    return channel;
}

static void reply_init(struct reply *r)
{
    *r = (struct reply){.status = GRPC_STATUS_UNKNOWN, .details = grpc_empty_slice()};
    grpc_metadata_array_init(&r->head);
    grpc_metadata_array_init(&r->trail);
}

static void reply_done(struct reply *r)
{
    if (r->message)
        grpc_byte_buffer_destroy(r->message);
    grpc_metadata_array_destroy(&r->head);
    grpc_metadata_array_destroy(&r->trail);
    grpc_slice_unref(r->details);
}

static void exchange(struct rpc_client *c, const char *method, const ProtobufCMessage *request, uint64_t timeout_ns,
                     struct reply *r)
{
    gpr_timespec deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos((int64_t)timeout_ns, GPR_TIMESPAN));
    grpc_slice path = grpc_slice_from_copied_string(method);
    grpc_slice host = grpc_slice_from_static_string("localhost");
    grpc_channel *channel = channel_open(c);
    grpc_call *call =
        grpc_channel_create_call(channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->queue, path, &host, deadline, NULL);
    grpc_byte_buffer *message = protobuf_pack(request);
    grpc_op ops[] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        {.op = GRPC_OP_RECV_INITIAL_METADATA, .data.recv_initial_metadata.recv_initial_metadata = &r->head},
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &r->message},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
         .data.recv_status_on_client = {.trailing_metadata = &r->trail,
                                        .status = &r->status,
                                        .status_details = &r->details}},
    };
    if (grpc_call_start_batch(call, ops, countof(ops), call, NULL) == GRPC_CALL_OK)
        grpc_completion_queue_pluck(c->queue, call, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    grpc_call_unref(call);
    grpc_channel_destroy(channel);
    grpc_byte_buffer_destroy(message);
    grpc_slice_unref(path);
}

static ProtobufCMessage *unpack(grpc_byte_buffer *message, const ProtobufCMessageDescriptor *type)
{
    grpc_byte_buffer_reader reader;
    if (!message || !grpc_byte_buffer_reader_init(&reader, message))
        return NULL;
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    ProtobufCMessage *m = protobuf_c_message_unpack(type, NULL, GRPC_SLICE_LENGTH(all), GRPC_SLICE_START_PTR(all));
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    return m;
}

int rpc_call(struct rpc_client *c, const char *method, const ProtobufCMessage *request,
             const ProtobufCMessageDescriptor *reply_type, uint64_t timeout_ns, ProtobufCMessage **ret, int *ret_status,
             struct err *err)
{
    struct reply r;
    reply_init(&r);
    exchange(c, method, request, timeout_ns, &r);
    int result = 0;
    ProtobufCMessage *m = r.status == GRPC_STATUS_OK ? unpack(r.message, reply_type) : NULL;
    if (r.status != GRPC_STATUS_OK) {
        *ret_status = (int)r.status;
        result = err_set(err, rpc_code_of((int)r.status), "%.*s", (int)GRPC_SLICE_LENGTH(r.details),
                         (const char *)GRPC_SLICE_START_PTR(r.details));
    } else if (!m) {
        *ret_status = GRPC_STATUS_INTERNAL;
        result = err_set(err, ERR_CORRUPT, "the answer to %s is not a %s", method, reply_type->name);
    } else
        *ret = m;
    reply_done(&r);
    return result;
}
