/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"
#include "call.h"
#include "util/clock.h"
#include "util/thread.h"
#include <stdio.h>

enum { THREADS_DEFAULT = 32, STREAMS_MAX = 256, METADATA_MAX = 16 << 10 };

/* The same as in the sidecars, so that one dashboard shows both. */
static const double buckets[] = {.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600, 0};

static void *queue_main(void *ctx)
{
    struct rpc_server *s = ctx;
    for (;;) {
        grpc_event e = grpc_completion_queue_next(s->queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        if (e.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        struct tag *t = e.tag;
        taken_back(t);
        t->done(t, e.success);
    }
}

static struct rpc_call *next_call(struct rpc_queue *l)
{
    struct rpc_server *s = l->server;
    auto_lock(&s->lock);
    while (list_is_empty(&l->calls) && !s->ending)
        pthread_cond_wait(&l->work, &s->lock);
    return list_pop(&l->calls, struct rpc_call, node);
}

static void *handler_main(void *ctx)
{
    struct rpc_call *c;
    while ((c = next_call(ctx)) != NULL)
        call_serve(c);
    return NULL;
}

static void on_down(struct tag *t, bool)
{
    struct rpc_server *s = container_of(t, struct rpc_server, down);
    auto_lock(&s->lock);
    s->is_down = true;
    pthread_cond_broadcast(&s->woken);
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

static struct rpc_server *server_new(const struct rpc_options *o)
{
    struct rpc_server *s = xcalloc(1, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    for (size_t i = 0; i < QUEUES; i++) {
        s->queues[i].server = s;
        pthread_cond_init(&s->queues[i].work, NULL);
    }
    pthread_cond_init(&s->woken, NULL);
    s->options = *o;
    s->down.done = on_down;
    s->seconds = metric_new(METRIC_HISTOGRAM, "csi_plugin_operations_seconds", "Duration of each CSI call.",
                            "driver_name,method_name,grpc_status_code", buckets);
    return s;
}

static void server_free(struct rpc_server *s)
{
    pthread_mutex_destroy(&s->lock);
    for (size_t i = 0; i < QUEUES; i++)
        pthread_cond_destroy(&s->queues[i].work);
    pthread_cond_destroy(&s->woken);
    free(s);
}

static grpc_arg limit(const char *key, int value)
{
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = value};
}

static void make_server(struct rpc_server *s)
{
    grpc_arg args[] = {
        limit(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, RPC_MESSAGE_MAX),
        limit(GRPC_ARG_MAX_CONCURRENT_STREAMS, STREAMS_MAX),
        limit(GRPC_ARG_MAX_METADATA_SIZE, METADATA_MAX),
    };
    grpc_channel_args all = {.num_args = countof(args), .args = args};
    s->server = grpc_server_create(&all, NULL);
    s->queue = grpc_completion_queue_create_for_next(NULL);
    grpc_server_register_completion_queue(s->server, s->queue, NULL);
    grpc_server_start(s->server);
}

static int start_threads(struct rpc_server *s, struct err *err)
{
    unsigned wanted = s->options.threads ? (unsigned)min_u64(s->options.threads, RPC_THREADS_MAX) : THREADS_DEFAULT;
    s->asleep_max = wanted * 3 / 4;
    int r = thread_start_named(&s->prompt_thread, "rpc/prompt", handler_main, &s->queues[QUEUE_PROMPT], err);
    if (r < 0)
        return r;
    s->has_prompt_thread = true;
    for (; s->thread_count < wanted; s->thread_count++) {
        char name[16];
        snprintf(name, sizeof name, "rpc/%u", s->thread_count);
        r = thread_start_named(&s->threads[s->thread_count], name, handler_main, &s->queues[QUEUE_ANY], err);
        if (r < 0)
            return r;
    }
    return thread_start_named(&s->queue_thread, "rpc/queue", queue_main, s, err);
}

static void join_handlers(struct rpc_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->ending = true;
    for (size_t i = 0; i < QUEUES; i++)
        pthread_cond_broadcast(&s->queues[i].work);
    pthread_mutex_unlock(&s->lock);
    if (s->has_prompt_thread)
        pthread_join(s->prompt_thread, NULL);
    s->has_prompt_thread = false;
    for (; s->thread_count > 0; s->thread_count--)
        pthread_join(s->threads[s->thread_count - 1], NULL);
}

static void close_queue(struct rpc_server *s)
{
    if (!s->queue)
        return;
    grpc_completion_queue_shutdown(s->queue);
    queue_main(s); /* drains it: no other thread reads it now */
    grpc_completion_queue_destroy(s->queue);
    s->queue = NULL;
}

/* Frees a server whose start failed; no queue thread runs, and no call was requested. */
static void take_apart(struct rpc_server *s)
{
    join_handlers(s);
    if (s->server) {
        grpc_server_shutdown_and_notify(s->server, s->queue, &s->down);
        grpc_completion_queue_next(s->queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        grpc_server_destroy(s->server);
    }
    close_queue(s);
    grpc_shutdown();
    server_free(s);
}

int rpc_server_start(const struct rpc_options *o, struct rpc_server **ret, struct err *err)
{
    grpc_init();
    struct rpc_server *s = server_new(o);
    int r = socket_name_init(&s->name, o->socket_path, err);
    if (r == 0) {
        make_server(s);
        r = start_threads(s, err);
    }
    if (r < 0) {
        take_apart(s);
        return r;
    }
    call_await(s);
    r = listener_start(&s->listener, s->server, s->name.temporary, err);
    if (r == 0)
        r = socket_name_publish(&s->name, err);
    if (r < 0) {
        unlink(s->name.temporary);
        rpc_server_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

/* ---- stopping ---------------------------------------------------------------------------------------------------- */

static bool wait_until_down(struct rpc_server *s, uint64_t until_ns)
{
    auto_lock(&s->lock);
    while (!s->is_down && clock_cond_wait(&s->woken, &s->lock, until_ns))
        ;
    return s->is_down;
}

void rpc_server_stop(struct rpc_server *s, uint64_t grace_ns)
{
    if (!s || s->stopping)
        return;
    socket_name_remove(&s->name);
    listener_stop(&s->listener);
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_broadcast(&s->woken);
    pthread_mutex_unlock(&s->lock);
    grpc_server_shutdown_and_notify(s->server, s->queue, &s->down);
    if (!wait_until_down(s, clock_now_ns() + grace_ns)) {
        grpc_server_cancel_all_calls(s->server);
        while (!wait_until_down(s, clock_now_ns() + NS_PER_SECOND))
            ;
    }
    /* A cancelled call has ended for gRPC while its handler still runs: close the queue after the last handler. */
    join_handlers(s);
    grpc_completion_queue_shutdown(s->queue);
    pthread_join(s->queue_thread, NULL);
}

bool rpc_server_has_name(const struct rpc_server *s)
{
    return socket_name_is_ours(&s->name);
}

void rpc_server_leave_name(struct rpc_server *s)
{
    s->name.published = false;
}

void rpc_server_free(struct rpc_server *s)
{
    if (!s)
        return;
    rpc_server_stop(s, 0);
    grpc_server_destroy(s->server);
    grpc_completion_queue_destroy(s->queue);
    grpc_shutdown();
    server_free(s);
}
