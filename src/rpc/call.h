/* SPDX-License-Identifier: Apache-2.0 */
/* call.h - one call, from its arrival to its last event. home: by state.
 *
 * The queue's thread owns a call; a handler's thread owns it while QUEUED and RUNNING. The queue's thread frees it
 * after both of its last events (closed, sent). */
#pragma once

#include "server.h"
#include "socket.h"
#include "util/list.h"
#include "util/mem.h"
#include "util/metric.h"
#include <grpc/grpc.h>
#include <pthread.h>

/* Marks the order of threads for the thread sanitizer: a tag goes into gRPC on one thread and comes out of the
 * completion queue on another. The sanitizer does not see how gRPC orders the two. */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define handed_over(tag) __tsan_release(tag)
#define taken_back(tag) __tsan_acquire(tag)
#else
#define handed_over(tag) ((void)(tag))
#define taken_back(tag) ((void)(tag))
#endif

enum call_state { CALL_AWAITED, CALL_READING, CALL_QUEUED, CALL_RUNNING, CALL_ANSWERING };

/* The tag of an operation; the completion queue returns it. */
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
    struct list_node node;                       /* under server->lock: in its queue */
    struct arena *request_memory, *reply_memory; /* owned; while RUNNING */
};

/* Calls that wait for a thread. */
struct rpc_queue {
    struct rpc_server *server; /* borrowed */
    struct list calls;         /* under server->lock */
    pthread_cond_t work;       /* a call was queued, or the server ends */
};

enum { QUEUE_ANY, QUEUE_PROMPT, QUEUES };

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
    struct rpc_queue queues[QUEUES];
    struct metric *seconds;
    struct tag down;

    pthread_mutex_t lock; /* guards the fields below, and the fields of calls that say so */
    pthread_cond_t woken; /* a call was cancelled, we are stopping, or all calls have ended */
    unsigned calls_open;
    unsigned asleep; /* calls in rpc_sleep_until */
    bool stopping, is_down, ending;
};

void call_await(struct rpc_server *s); /* asks gRPC for one call more */
void call_serve(struct rpc_call *c);   /* on a handler's thread; frees the call */
