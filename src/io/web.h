/* SPDX-License-Identifier: Apache-2.0 */
/* web.h - sends HTTP requests as jobs on a loop (libcurl's multi interface): connections, TLS, proxy, rate cap.
 * home: the loop. Callbacks run on it, never within web_submit. HTTP/1.1 with keep-alive only: one TCP connection is
 * too slow for HTTP/2. Redirects are not followed: the caller decides which server gets its credentials.
 *
 * The proxy comes from the environment (https_proxy, http_proxy, no_proxy). Without a proxy, a thread named "name"
 * looks up the addresses of a host. Connections are spread over all of them; a dead address is avoided for a while.
 * Code: web.c, and web_transfer.c for web_status() and web_reply_header(). */
#pragma once

#include "io/guard.h"
#include "io/loop.h"
#include "io/rate.h"
#include "util/str.h"

struct web;
struct web_job;

#define WEB_STALL_NS (30 * NS_PER_SECOND)

struct web_options {
    const char *ca_file;         /* NULL: the system's */
    struct str ca;               /* PEM text instead of the file; empty: none. These three are copied */
    struct str certificate, key; /* PEM, of the client; empty: none. The copies are wiped */
    bool any_server;             /* its certificate is not checked */
    unsigned connections_max;    /* kept open, for this loop; 0: 64 */
    uint64_t connect_timeout_ns; /* 0: 10 s */
    uint64_t stall_timeout_ns;   /* ERR_TIMEOUT after this time without a byte; 0: WEB_STALL_NS */
    const struct guard *guard; /* borrowed: the addresses to which connections are allowed, a proxy's too; NULL: all */
};

struct web_header {
    const char *name;
    struct str value;
};

enum { WEB_PAUSE = 1 };

struct web_result {
    int code;            /* 0: a complete HTTP reply of any status; else -(enum err_code) */
    int status;          /* HTTP status; 0: no reply */
    unsigned sends;      /* how often it was sent: libcurl repeats it if a kept connection was dead */
    uint64_t body_bytes; /* received */
    uint64_t first_byte_ns;
    uint64_t total_ns;
    bool turned_away; /* its new connection was refused, or closed before the request (TLS: the handshake) was read */
    bool closed;      /* its new connection was opened, and closed before a byte of the reply */
    struct err err;   /* set if code < 0 */
};

struct web_request {
    const char *method;               /* "GET" */
    const char *url;                  /* complete, percent-encoded; copied */
    const struct web_header *headers; /* copied */
    size_t header_count;

    /* The body: `body_len` bytes of `body` (borrowed until on_done), or of body_read if `body` is NULL. body_seek lets
     * libcurl start again on a new connection. */
    const void *body;
    uint64_t body_len;
    ssize_t (*body_read)(void *ctx, char *buf, size_t room); /* bytes, 0 at the end, -1 aborts */
    int (*body_seek)(void *ctx, uint64_t offset);            /* 0, or -1 */

    /* Settings that override the options for this server: both copied. */
    struct str ca;          /* PEM text: the issuer of its certificate; empty: as in the options */
    const char *connect_to; /* "10.0.0.1:443": connects there without a proxy; NULL: as the URL says */
    bool new_connection;    /* the last reply was malformed: its connection may have bytes of it left */
    bool once;              /* libcurl must not repeat it: the caller looks first whether it was done */
    bool unguarded;         /* our own URL, not a user's: may connect to any address */

    uint64_t expect_bytes; /* expected bytes of the reply's body: sizes the receive buffer; 0: unknown */

    struct rate *rate;         /* borrowed; NULL: no cap. Counts body bytes, both ways */
    uint64_t timeout_ns;       /* for the whole request; 0: none. Both timeouts are checked four times a second */
    uint64_t stall_timeout_ns; /* 0: as in the options */
    uint64_t stall_bytes;      /* fewer body bytes in that time are a stall too; 0: any byte suffices */

    void *ctx;
    /* Status and all headers are received. A negative result aborts the job with that code. May be NULL. */
    int (*on_head)(void *ctx, struct web_job *j);
    /* Bytes of the body, not decompressed. Returns 0, WEB_PAUSE or a negative code, which aborts. After WEB_PAUSE,
     * web_resume delivers the same bytes again. A paused job does not stall. */
    int (*on_body)(void *ctx, const char *bytes, size_t len);
    /* Called exactly once, last; the job is freed afterwards. */
    void (*on_done)(void *ctx, const struct web_result *r);
};

/* Keeps freed memory in the heap: for a program that receives much and then ends. A daemon would keep the memory of its
 * busiest moment. Call it before the first thread. */
void web_keep_heap(void);

must_check int web_new(struct loop *l, const struct web_options *o, struct web **ret, struct err *err);
void web_free(struct web *w); /* running jobs end with ERR_CANCELLED first; NULL is fine */
DEFINE_AUTO(web, struct web, web_free)
#define auto_web auto_with(auto_clean_web) struct web *

/* Never NULL: an error that prevents the start goes to on_done. */
struct web_job *web_submit(struct web *w, const struct web_request *r);

/* on_done follows with ERR_CANCELLED after this returns, and no other callback before it. */
void web_cancel(struct web_job *j);
void web_resume(struct web_job *j); /* on_body follows, after this returns; not paused is fine */

/* Idle connections beyond this number are closed: for a server that accepts few. */
void web_set_idle_max(struct web *w, unsigned connections);

/* Counts of connections that were tried since the start, and of those that the server refused or closed. */
struct web_connects {
    uint64_t connections, turned_away;
};
struct web_connects web_connects(const struct web *w);

int web_status(const struct web_job *j);
/* A header of the answer (its last value), or STR_NULL; from on_head until on_done returns. Name in any case. */
struct str web_reply_header(struct web_job *j, const char *name);
