/* SPDX-License-Identifier: Apache-2.0 */
/* call.h - one call, from its arrival to its last event. home: by state.
 *
 * The queue's thread owns a call, but for QUEUED and RUNNING, when a handler's thread does. It is freed by the queue's
 * thread, when both of its last events (closed, sent) have come. */
#pragma once

#include "listen.h"
#include "server.h"
#include "socket.h"
#include "util/mem.h"
#include "util/metric.h"
#include <grpc/grpc.h>
#include <pthread.h>

enum call_state { CALL_AWAITED, CALL_READING, CALL_QUEUED, CALL_RUNNING, CALL_ANSWERING };

/* What the completion queue hands back. */
struct tag {
    void (*done)(struct tag *t, bool ok);
};

struct rpc_call {
    struct rpc_server *server; /* borrowed */
    enum call_state state;
    struct tag arrived, read, closed, sent;
    grpc_call *call; /* owned */
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_byte_buffer *request, *reply; /* owned */
    uint64_t deadline_ns;
    int was_cancelled;                           /* gRPC's, valid when `closed` is done */
    bool cancelled;                              /* under server->lock */
    unsigned events_left;                        /* of closed and sent; the queue's thread */
    struct rpc_call *next;                       /* under server->lock: in its line */
    struct arena *request_memory, *reply_memory; /* owned; while RUNNING */
};

/* Calls that a thread is to serve, and the threads' way to hear of them. */
struct line {
    struct rpc_server *server;     /* borrowed */
    struct rpc_call *first, *last; /* under server->lock */
    pthread_cond_t work;           /* there is a call to serve, or none will come */
};

enum { LINE_ANY, LINE_PROMPT, LINES };

struct rpc_server {
    struct rpc_options options;
    struct socket_name name;
    struct listener listener;
    grpc_server *server;          /* owned */
    grpc_completion_queue *queue; /* owned */
    pthread_t queue_thread;
    pthread_t prompt_thread;
    bool has_prompt_thread;
    pthread_t threads[RPC_THREADS_MAX];
    unsigned thread_count;
    unsigned asleep_max; /* frozen once calls come */
    struct line lines[LINES];
    struct metric *seconds;
    struct tag down;

    pthread_mutex_t lock; /* guards what follows, and the fields of calls that say so */
    pthread_cond_t woken; /* a call was cancelled, we are stopping, or all calls have ended */
    unsigned calls_open;
    unsigned asleep; /* calls in rpc_sleep_until */
    bool stopping, is_down, ending;
};

void call_await(struct rpc_server *s); /* asks gRPC for one call more */
void call_serve(struct rpc_call *c);   /* on a handler's thread; the call is gone afterwards */
