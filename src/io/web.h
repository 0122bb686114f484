/* SPDX-License-Identifier: Apache-2.0 */
/* web.h - an HTTP request as a job on a loop (libcurl's multi interface): connections, TLS, proxy, rate cap.
 * home: the loop. Callbacks run on it, never from within web_submit. HTTP/1.1 with keep-alive only: one TCP connection
 * is not fast enough for HTTP/2 to be worth it. Redirects are not followed: the caller decides where its credentials
 * go. The proxy comes from the environment (https_proxy, http_proxy, no_proxy). Without one a name is looked up by a
 * thread of its own ("name"), its connections are spread over all of its addresses, and one that is dead is left alone
 * for a while. */
#pragma once

#include "io/guard.h"
#include "io/loop.h"
#include "io/rate.h"
#include "util/str.h"

struct web;
struct web_job;

struct web_options {
    const char *ca_file;         /* NULL: the system's */
    struct str ca;               /* PEM text instead of the file; empty: none. These three are copied */
    struct str certificate, key; /* PEM: who we are to a server that asks; empty: nobody. The copies are wiped */
    bool any_server;             /* its certificate is not looked at */
    unsigned connections_max;    /* kept open, for this loop; 0: 64 */
    uint64_t connect_timeout_ns; /* 0: 10 s */
    uint64_t stall_timeout_ns;   /* no byte either way for so long is ERR_TIMEOUT; 0: 30 s */
    const struct guard *guard;   /* borrowed: which addresses may be connected to; NULL: all. A proxy is one of them */
};

struct web_header {
    const char *name;
    struct str value;
};

enum { WEB_PAUSE = 1 };

struct web_result {
    int code;            /* 0: an HTTP answer came, whole, whatever its status; else -(enum err_code) */
    int status;          /* HTTP status, 0 if none came */
    unsigned sends;      /* how often it was sent: again, where a connection that was kept turned out to be dead */
    uint64_t body_bytes; /* received */
    uint64_t first_byte_ns;
    uint64_t total_ns;
    bool turned_away; /* the connection that was made for it was refused, or closed before a byte of the answer */
    struct err err;   /* set if code < 0 */
};

struct web_request {
    const char *method;               /* "GET" */
    const char *url;                  /* complete, percent-encoded; copied */
    const struct web_header *headers; /* copied */
    size_t header_count;

    /* What is sent: `body_len` bytes of `body` (borrowed until on_done), or, with body NULL and body_read set, what
     * body_read gives. body_seek lets libcurl start again on a fresh connection. */
    const void *body;
    uint64_t body_len;
    ssize_t (*body_read)(void *ctx, char *buf, size_t room); /* bytes, 0 at the end, -1 aborts */
    int (*body_seek)(void *ctx, uint64_t offset);            /* 0, or -1 */

    /* Another way to this server than the others': both copied. */
    struct str ca;          /* PEM text: who signs its certificate; empty: as in the options */
    const char *connect_to; /* "10.0.0.1:443": connected to, without a proxy, whatever the URL's host; NULL: none */
    bool unguarded;         /* its URL is our own, not a user's: it may connect to any address */

    uint64_t expect_bytes; /* of the answer's body: sizes the receive buffer; 0: not known */

    struct rate *rate;         /* borrowed; NULL: no cap. Counts body bytes, both ways */
    uint64_t timeout_ns;       /* of the whole; 0: none. It and the stall timeout are looked at four times a second */
    uint64_t stall_timeout_ns; /* 0: as in the options; for what may be silent for long */
    uint64_t stall_bytes;      /* fewer of the body than this in that time is a stall too; 0: any byte will do */

    void *ctx;
    /* The status and all headers are there. Negative aborts the job with that code. May be NULL. */
    int (*on_head)(void *ctx, struct web_job *j);
    /* Some bytes of the body, as stored: nothing is decompressed. 0; WEB_PAUSE (these bytes come again after
     * web_resume); negative aborts. A paused job does not stall. */
    int (*on_body)(void *ctx, const char *bytes, size_t len);
    /* Exactly once, last; the job is gone afterwards. */
    void (*on_done)(void *ctx, const struct web_result *r);
};

/* For a program that receives much and ends: its heap keeps what it once had. Not for a daemon, which would keep the
 * memory of its busiest moment. Before the first thread. */
void web_keep_buffers(void);

must_check int web_new(struct loop *l, const struct web_options *o, struct web **ret, struct err *err);
void web_free(struct web *w); /* jobs under way end with ERR_CANCELLED first; NULL is fine */
DEFINE_AUTO(web, struct web, web_free)
#define auto_web auto_with(auto_clean_web) struct web *

/* Never fails by return: what cannot even start is told to on_done. */
struct web_job *web_submit(struct web *w, const struct web_request *r);

/* on_done follows with ERR_CANCELLED, after this returns, and no other callback before it. */
void web_cancel(struct web_job *j);
void web_resume(struct web_job *j); /* on_body follows, after this returns; not paused is fine */

/* Connections beyond so many are closed as soon as they have nothing to do: for a server that bears few. */
void web_keep(struct web *w, unsigned connections);

/* How many connections were tried since the beginning, and how many of them were turned away. */
struct web_tried {
    uint64_t connections, turned_away;
};
struct web_tried web_tried(const struct web *w);

int web_status(const struct web_job *j);
/* A header of the answer (its last value), or STR_NULL; from on_head until on_done returns. Name in any case. */
struct str web_reply_header(struct web_job *j, const char *name);
