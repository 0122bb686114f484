/* SPDX-License-Identifier: Apache-2.0 */
/* server.h - serves unary gRPC calls on a unix socket by a table of handlers.
 * home: one thread (main) starts, stops and frees it. Handlers run on "rpc/N", one a thread, and may block. Handlers of
 * prompt methods run on "rpc/prompt", one after the other. The memory of a call is freed with it.
 *
 * A handler gets only valid requests: at most RPC_MESSAGE_MAX bytes, valid protobuf, every string UTF-8 without NUL.
 * The server answers other requests with INVALID_ARGUMENT. Only this room maps error codes to gRPC statuses.
 * Code: server.c, call.c (for handlers), status.c and protobuf.c. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <protobuf-c/protobuf-c.h>

enum {
    RPC_MESSAGE_MAX = 1 << 20, /* CSI's maps and strings end at 4 KiB; secrets may be larger */
    RPC_THREADS_MAX = 128,
    RPC_CALLS_MAX = 512, /* accepted and not yet answered; more get UNAVAILABLE at once */
};

struct rpc_server;
struct rpc_call;

/* Fills *reply, which is initialised; its pointers come from rpc_alloc, rpc_text and rpc_dup, or are static. */
typedef int rpc_handler(void *ctx, struct rpc_call *call, const ProtobufCMessage *request, ProtobufCMessage *reply,
                        struct err *err);

struct rpc_method {
    const char *path; /* "/csi.v1.Identity/Probe" */
    const ProtobufCMessageDescriptor *request, *reply;
    rpc_handler *handle;
    bool is_prompt; /* the handler never waits: such calls have a thread of their own */
};

struct rpc_options {
    const char *socket_path;          /* absolute; an existing file is replaced by a rename */
    const char *driver_name;          /* label of csi_plugin_operations_seconds */
    unsigned threads;                 /* for calls that are not prompt; 0: 32 */
    const struct rpc_method *methods; /* frozen; outlives the server */
    size_t method_count;
    void *ctx; /* for the handlers; outlives the server */
    /* Called with the result of each call, on its thread, before the reply is sent: for the log. `err` NULL: OK. May be
     * NULL. */
    void (*answered)(void *ctx, const char *path, const struct err *err, uint64_t took_ns);
    void *answered_ctx; /* NULL: ctx */
};

/* Binds and serves. The socket appears at its path when it accepts calls. */
must_check int rpc_server_start(const struct rpc_options *o, struct rpc_server **ret, struct err *err);

/* Accepts no more calls and returns after the last handler. rpc_cancelled becomes true at once, so that handlers can
 * stop waiting; after `grace_ns` the calls are cancelled. Removes the socket, unless another server replaced it. May
 * run twice; NULL is fine. */
void rpc_server_stop(struct rpc_server *s, uint64_t grace_ns);
void rpc_server_free(struct rpc_server *s); /* stops without grace first; NULL is fine */

/* Does the path still name this server's socket? False after another server replaced it. Any thread. */
bool rpc_server_has_name(const struct rpc_server *s);
/* Lets rpc_server_stop keep the socket's path. */
void rpc_server_leave_name(struct rpc_server *s);

/* ---- for handlers, on their own thread --------------------------------------------------------------------------- */

/* Did the caller disconnect, or is the server stopping? */
bool rpc_cancelled(const struct rpc_call *c);

/* Sleeps until `until_ns` (clock_now_ns), the caller's deadline or a cancellation. True: slept to `until_ns`. False at
 * once if three quarters of the threads sleep already, so that other calls find a thread: the handler then returns
 * ERR_PENDING. */
bool rpc_sleep_until(struct rpc_call *c, uint64_t until_ns);

/* The caller's deadline in clock_now_ns; UINT64_MAX if it gave none. */
uint64_t rpc_deadline_ns(const struct rpc_call *c);

/* Zeroed memory of the call. Never NULL: beyond 32 MiB the process ends; handlers limit their lists to prevent
 * that. */
void *rpc_alloc(struct rpc_call *c, size_t count, size_t size);
char *rpc_text(struct rpc_call *c, const char *fmt, ...) printf_like(2, 3);
char *rpc_dup(struct rpc_call *c, struct str s);

/* ---- pure, for tests --------------------------------------------------------------------------------------------- */

/* The gRPC status code of an error; 13 (INTERNAL) for a code outside the table. */
int rpc_status_of(enum err_code code);
/* The inverse, for a caller: if several errors share a status, the last of them in util/err.h. */
enum err_code rpc_code_of(int status);
/* "NotFound" and so on, as Go's gRPC spells them: the label that the sidecars' dashboards know. */
const char *rpc_status_name(int status);

/* Is `bytes` a message of this type whose strings are all UTF-8 without NUL? Unknown fields are skipped. */
must_check int rpc_protobuf_check(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t len,
                                  struct err *err);
