/* SPDX-License-Identifier: Apache-2.0 */
/* server.h - unary gRPC on a unix socket: a completion queue in front, a table of handlers behind.
 * home: made, stopped and freed by one thread (main). Handlers run on "rpc/N", as many at once as there are threads,
 * and may block; those of prompt methods on "rpc/prompt", one after the other. What a call allocates dies with it.
 *
 * A request is handed over only when it is well: at most RPC_MESSAGE_MAX bytes, right protobuf, every string UTF-8
 * without NUL. Anything else is answered here, with INVALID_ARGUMENT and a sentence. This folder is also the only place
 * that knows which gRPC status an error of ours is. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <protobuf-c/protobuf-c.h>

enum {
    RPC_MESSAGE_MAX = 1 << 20, /* CSI's maps and strings end at 4 KiB; secrets may be larger */
    RPC_THREADS_MAX = 128,
    RPC_CALLS_MAX = 512, /* accepted and not yet answered; more are told UNAVAILABLE at once */
};

struct rpc_server;
struct rpc_call;

/* Fills *reply, which is initialised; what it points to comes from rpc_alloc and its kin, or is static. */
typedef int rpc_handler(void *ctx, struct rpc_call *call, const ProtobufCMessage *request, ProtobufCMessage *reply,
                        struct err *err);

struct rpc_method {
    const char *path; /* "/csi.v1.Identity/Probe" */
    const ProtobufCMessageDescriptor *request, *reply;
    rpc_handler *handle;
    bool is_prompt; /* the handler waits for nothing: such calls have a thread of their own, whatever others wait for */
};

struct rpc_options {
    const char *socket_path;          /* absolute; what is there is replaced by a rename */
    const char *driver_name;          /* label of csi_plugin_operations_seconds */
    unsigned threads;                 /* for calls that are not prompt; 0: 32 */
    const struct rpc_method *methods; /* frozen; outlives the server */
    size_t method_count;
    void *ctx; /* for the handlers; outlives the server */
    /* What became of a call, told on its thread before the answer leaves: for the log. `err` NULL: OK. May be NULL. */
    void (*answered)(void *ctx, const char *path, const struct err *err, uint64_t took_ns);
    void *answered_ctx; /* NULL: ctx */
};

/* Binds and serves. The socket appears at its path only when it answers. */
must_check int rpc_server_start(const struct rpc_options *o, struct rpc_server **ret, struct err *err);

/* Takes no more calls, gives those under way `grace_ns` (rpc_cancelled turns true at once, so that those who wait for
 * something can leave), then cancels them; returns when the last handler has. The socket is removed if it is still the
 * one that we bound. May run twice; NULL is fine. */
void rpc_server_stop(struct rpc_server *s, uint64_t grace_ns);
void rpc_server_free(struct rpc_server *s); /* stops without grace first; NULL is fine */

/* Does the path still lead to our socket? Not after another server took the name. Any thread. */
bool rpc_server_has_name(const struct rpc_server *s);
/* The name is not removed at the end. Before rpc_server_stop. */
void rpc_server_leave_name(struct rpc_server *s);

/* ---- for handlers, on their own thread --------------------------------------------------------------------------- */

/* Has the caller gone, or are we stopping? */
bool rpc_cancelled(const struct rpc_call *c);

/* Sleeps until `until_ns` (clock_now_ns), the caller's deadline or a cancellation. True: slept to `until_ns`. False at
 * once if calls sleep already on all threads but a quarter, which are kept for calls that would not: it is time to say
 * "not yet, ask again". */
bool rpc_sleep_until(struct rpc_call *c, uint64_t until_ns);

/* The caller's deadline in clock_now_ns; UINT64_MAX if it gave none. */
uint64_t rpc_deadline_ns(const struct rpc_call *c);

/* Zeroed memory of the call. Never NULL: past a ceiling of 32 MiB the process ends, which handlers prevent by their own
 * limits on lists. */
void *rpc_alloc(struct rpc_call *c, size_t count, size_t size);
char *rpc_text(struct rpc_call *c, const char *fmt, ...) printf_like(2, 3);
char *rpc_dup(struct rpc_call *c, struct str s);

/* ---- pure, for tests --------------------------------------------------------------------------------------------- */

/* The gRPC status code of an error; 13 (INTERNAL) for a code that is not in the table. */
int rpc_status_of(enum err_code code);
/* The other way, for a caller: where several errors share a status, the last of them in err.h. */
enum err_code rpc_code_of(int status);
/* "NotFound" and so on, as Go's gRPC spells them: the label that the sidecars' dashboards know. */
const char *rpc_status_name(int status);

/* Is `bytes` a message of this type whose strings are all UTF-8 without NUL? Unknown fields are skipped. */
must_check int rpc_wire_check(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t len,
                              struct err *err);
