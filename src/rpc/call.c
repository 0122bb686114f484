/* SPDX-License-Identifier: Apache-2.0 */
#include "call.h"
#include "protobuf.h"
#include "util/clock.h"
#include "util/thread.h"
#include <assert.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/support/time.h>
#include <stdio.h>

/* A request of 1 MiB made of empty messages unpacks into some 30 MiB: it is refused. */
enum { REQUEST_MEMORY_MAX = 8 << 20, REPLY_MEMORY_MAX = 32 << 20, BLOCK = 16 << 10 };

static void call_become(struct rpc_call *c, enum call_state next)
{
    static const bool allowed[][CALL_ANSWERING + 1] = {
        [CALL_AWAITED] = {[CALL_READING] = true, [CALL_ANSWERING] = true},
        [CALL_READING] = {[CALL_QUEUED] = true, [CALL_ANSWERING] = true},
        [CALL_QUEUED] = {[CALL_RUNNING] = true},
        [CALL_RUNNING] = {[CALL_ANSWERING] = true},
        [CALL_ANSWERING] = {false},
    };
    assert(allowed[c->state][next]);
    c->state = next;
}

static void call_free(struct rpc_call *c)
{
    if (c->request)
        grpc_byte_buffer_destroy(c->request);
    if (c->reply)
        grpc_byte_buffer_destroy(c->reply);
    grpc_call_details_destroy(&c->details);
    grpc_metadata_array_destroy(&c->metadata);
    if (c->call)
        grpc_call_unref(c->call);
    free(c);
}

static const struct rpc_method *method_of(const struct rpc_call *c)
{
    const struct rpc_options *o = &c->server->options;
    struct str path = {(const char *)GRPC_SLICE_START_PTR(c->details.method), GRPC_SLICE_LENGTH(c->details.method)};
    for (size_t i = 0; i < o->method_count; i++)
        if (str_eq(path, str_of(o->methods[i].path)))
            return &o->methods[i];
    return NULL;
}

/* Submits to gRPC. Only the queue's thread may touch the call afterwards: the completion may free it. */
static void hand_over(grpc_call *call, const grpc_op *ops, size_t count, struct tag *tag)
{
    handed_over(tag);
    grpc_call_error e = grpc_call_start_batch(call, ops, count, tag, NULL);
    assert(e == GRPC_CALL_OK);
}

/* ---- answering --------------------------------------------------------------------------------------------------- */

/* Called by any owner of the call, which must not touch it afterwards. */
static void answer(struct rpc_call *c, int status, const char *text)
{
    grpc_slice details = grpc_slice_from_copied_string(text);
    grpc_op ops[3] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
         .data.send_status_from_server = {.status = (grpc_status_code)status, .status_details = &details}},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = c->reply}};
    call_become(c, CALL_ANSWERING);
    hand_over(c->call, ops, c->reply ? 3 : 2, &c->sent);
    grpc_slice_unref(details);
}

static void answer_err(struct rpc_call *c, const struct err *err)
{
    char line[ERR_LINE_MAX];
    answer(c, rpc_status_of(err->code), err_line(err, line, sizeof line));
}

/* ---- events, on the queue's thread ------------------------------------------------------------------------------- */

static void one_event_less(struct rpc_call *c)
{
    if (--c->events_left > 0)
        return;
    struct rpc_server *s = c->server;
    call_free(c);
    auto_lock(&s->lock);
    s->calls_open--;
}

static void on_sent(struct tag *t, bool ok)
{
    (void)ok; /* the caller disconnected: it will call again */
    one_event_less(container_of(t, struct rpc_call, sent));
}

static void on_closed(struct tag *t, bool ok)
{
    struct rpc_call *c = container_of(t, struct rpc_call, closed);
    struct rpc_server *s = c->server;
    pthread_mutex_lock(&s->lock);
    c->cancelled = !ok || c->was_cancelled;
    pthread_cond_broadcast(&s->woken);
    pthread_mutex_unlock(&s->lock);
    one_event_less(c);
}

static void on_read(struct tag *t, bool ok)
{
    struct rpc_call *c = container_of(t, struct rpc_call, read);
    struct rpc_server *s = c->server;
    if (!ok || !c->request) {
        answer(c, GRPC_STATUS_INVALID_ARGUMENT, "the call has no request");
        return;
    }
    call_become(c, CALL_QUEUED);
    const struct rpc_method *m = method_of(c);
    struct rpc_queue *l = &s->queues[m && m->is_prompt ? QUEUE_PROMPT : QUEUE_ANY];
    auto_lock(&s->lock);
    list_add(&l->calls, &c->node);
    pthread_cond_signal(&l->work);
}

static uint64_t deadline_of(gpr_timespec deadline)
{
    if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0)
        return UINT64_MAX;
    gpr_timespec now = gpr_now(GPR_CLOCK_MONOTONIC);
    gpr_timespec left = gpr_time_sub(gpr_convert_clock_type(deadline, GPR_CLOCK_MONOTONIC), now);
    if (left.tv_sec < 0)
        return clock_now_ns();
    if (left.tv_sec > INT32_MAX)
        return UINT64_MAX;
    return clock_now_ns() + (uint64_t)left.tv_sec * NS_PER_SECOND + (uint64_t)left.tv_nsec;
}

static void watch_for_close(struct rpc_call *c)
{
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &c->was_cancelled};
    hand_over(c->call, &op, 1, &c->closed);
}

static void read_request(struct rpc_call *c)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &c->request};
    call_become(c, CALL_READING);
    hand_over(c->call, &op, 1, &c->read);
}

static void on_arrived(struct tag *t, bool ok)
{
    struct rpc_call *c = container_of(t, struct rpc_call, arrived);
    struct rpc_server *s = c->server;
    if (!ok) { /* the server is stopping: no call arrived */
        call_free(c);
        return;
    }
    pthread_mutex_lock(&s->lock);
    bool full = ++s->calls_open > RPC_CALLS_MAX;
    bool stopping = s->stopping;
    pthread_mutex_unlock(&s->lock);
    if (!stopping)
        call_await(s);
    c->events_left = 2;
    c->deadline_ns = deadline_of(c->details.deadline);
    watch_for_close(c);
    if (full)
        answer(c, GRPC_STATUS_UNAVAILABLE, "too many calls at once; retry");
    else
        read_request(c);
}

void call_await(struct rpc_server *s)
{
    struct rpc_call *c = xcalloc(1, sizeof *c);
    c->server = s;
    c->arrived.done = on_arrived;
    c->read.done = on_read;
    c->closed.done = on_closed;
    c->sent.done = on_sent;
    grpc_call_details_init(&c->details);
    grpc_metadata_array_init(&c->metadata);
    handed_over(&c->arrived);
    grpc_call_error e =
        grpc_server_request_call(s->server, &c->call, &c->details, &c->metadata, s->queue, s->queue, &c->arrived);
    assert(e == GRPC_CALL_OK);
}

/* ---- serving, on a handler's thread ------------------------------------------------------------------------------ */

static void *take_request_memory(void *arena, size_t size)
{
    return arena_alloc(arena, size ? size : 1);
}

static void leave_request_memory(void *arena, void *p)
{
    (void)arena, (void)p; /* freed with the arena */
}

static int decode(struct rpc_call *c, const struct rpc_method *m, ProtobufCMessage **ret, struct err *err)
{
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, c->request))
        return err_set(err, ERR_INVALID, "the compression of the request is not supported");
    grpc_slice bytes = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    ProtobufCAllocator allocator = {take_request_memory, leave_request_memory, c->request_memory};
    int r = rpc_protobuf_check(m->request, GRPC_SLICE_START_PTR(bytes), GRPC_SLICE_LENGTH(bytes), err);
    if (r == 0) {
        *ret = protobuf_c_message_unpack(m->request, &allocator, GRPC_SLICE_LENGTH(bytes), GRPC_SLICE_START_PTR(bytes));
        if (!*ret)
            r = err_set(err, ERR_INVALID, "the request is not a '%s', or has too many parts", m->request->name);
    }
    grpc_slice_unref(bytes);
    return r;
}

static int run(struct rpc_call *c, const struct rpc_method *m, struct err *err)
{
    ProtobufCMessage *request = NULL;
    int r = decode(c, m, &request, err);
    if (r < 0)
        return r;
    ProtobufCMessage *reply = rpc_alloc(c, 1, m->reply->sizeof_message);
    protobuf_c_message_init(m->reply, reply);
    r = m->handle(c->server->options.ctx, c, request, reply, err);
    if (r < 0)
        return r;
    c->reply = protobuf_pack(reply);
    return 0;
}

static void report(struct rpc_server *s, const struct rpc_method *m, const struct err *failed, uint64_t took_ns)
{
    const char *status = rpc_status_name(failed ? rpc_status_of(failed->code) : GRPC_STATUS_OK);
    metric_observe(metric_series(s->seconds, s->options.driver_name, m->path, status), (double)took_ns / NS_PER_SECOND);
    if (s->options.answered)
        s->options.answered(s->options.answered_ctx ? s->options.answered_ctx : s->options.ctx, m->path, failed,
                            took_ns);
}

static void run_and_answer(struct rpc_call *c, const struct rpc_method *m)
{
    struct err err;
    uint64_t began_ns = clock_now_ns();
    c->request_memory = arena_new(BLOCK, REQUEST_MEMORY_MAX);
    c->reply_memory = arena_new(BLOCK, REPLY_MEMORY_MAX);
    int r = rpc_cancelled(c) ? err_set(&err, ERR_CANCELLED, "the caller disconnected") : run(c, m, &err);
    arena_free(take(&c->request_memory));
    arena_free(take(&c->reply_memory));
    report(c->server, m, r < 0 ? &err : NULL, clock_now_ns() - began_ns);
    if (r < 0)
        answer_err(c, &err);
    else
        answer(c, GRPC_STATUS_OK, "");
}

void call_serve(struct rpc_call *c)
{
    call_become(c, CALL_RUNNING);
    const struct rpc_method *m = method_of(c);
    if (m) {
        run_and_answer(c, m);
        return;
    }
    struct err err;
    err_set(&err, ERR_UNSUPPORTED, "'%.*s' is not served here", (int)min_u64(GRPC_SLICE_LENGTH(c->details.method), 120),
            (const char *)GRPC_SLICE_START_PTR(c->details.method));
    answer_err(c, &err);
}

/* ---- for handlers ------------------------------------------------------------------------------------------------ */

bool rpc_cancelled(const struct rpc_call *c)
{
    auto_lock(&c->server->lock);
    bool gone = c->cancelled || c->server->stopping;
    return gone || clock_now_ns() >= c->deadline_ns;
}

bool rpc_sleep_until(struct rpc_call *c, uint64_t until_ns)
{
    struct rpc_server *s = c->server;
    uint64_t wake_ns = min_u64(until_ns, c->deadline_ns);
    auto_lock(&s->lock);
    bool gone = s->asleep++ >= s->asleep_max;
    while (!(gone |= c->cancelled || s->stopping) && clock_cond_wait(&s->woken, &s->lock, wake_ns))
        ;
    s->asleep--;
    return !gone && wake_ns == until_ns;
}

uint64_t rpc_deadline_ns(const struct rpc_call *c)
{
    return c->deadline_ns;
}

void *rpc_alloc(struct rpc_call *c, size_t count, size_t size)
{
    assert(size == 0 || count <= REPLY_MEMORY_MAX / size);
    void *p = arena_alloc(c->reply_memory, max_u64(count * size, 1));
    assert(p);
    return p;
}

char *rpc_dup(struct rpc_call *c, struct str s)
{
    char *copy = rpc_alloc(c, s.len + 1, 1);
    if (s.len)
        memcpy(copy, s.ptr, s.len);
    return copy;
}

char *rpc_text(struct rpc_call *c, const char *fmt, ...)
{
    char text[ERR_LINE_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return rpc_dup(c, str_of(text));
}
