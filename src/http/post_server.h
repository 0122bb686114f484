/* SPDX-License-Identifier: Apache-2.0 */
/* post_server.h - serves one POST call over HTTPS (libmicrohttpd with GnuTLS). home: one thread starts it, changes
 * its certificate and frees it. The callback runs on the connection's own thread, many at a time, and may block.
 *
 * Limits: 256 connections (a new one closes the oldest without a complete request), 64 for each address (more are
 * closed at once). The calls of an address may not exceed the free places; more get 503 with Retry-After. Head and
 * body have at most 16 KiB each; a connection may be silent for 10 s. It serves one call, with TLS 1.2 or later.
 * Sent replies are wiped. */
#pragma once

#include "util/err.h"
#include "util/str.h"

struct post_server;

enum { POST_BODY_MAX = 16 << 10 };

struct post_request {
    struct str authorization; /* the header's value; empty if missing */
    struct str body;
    struct str peer; /* the caller's address in bytes, to count its calls */
};

struct post_server_options {
    const char *listen; /* "127.0.0.1:8443", ":8443" for every address; port 0: any */
    const char *path;   /* path of the call: static. GET /healthz works too, for probes */
    void *ctx;
    /* Writes a JSON document into `answer` and returns the HTTP status. *retry_after_seconds sets the header
     * Retry-After. */
    unsigned (*call)(void *ctx, const struct post_request *r, struct sbuf *answer, unsigned *retry_after_seconds);
    unsigned silence_seconds; /* an idle connection is closed after them; 0: 10 */
};

/* Listens; no connection is served before the first certificate. An address in use is ERR_BUSY, a malformed one
 * ERR_INVALID. Options are copied. */
must_check int post_server_open(const struct post_server_options *o, struct post_server **ret, struct err *err);

/* New connections get this certificate (PEM, with the chain to the authority) and `key`. Blocks until the open
 * connections have ended with the old one, for 30 s at most. ERR_INVALID changes nothing. */
must_check int post_server_set_certificate(struct post_server *c, const char *certificate, const char *key,
                                           struct err *err);

/* Waits for running callbacks; NULL is fine. */
void post_server_free(struct post_server *c);
DEFINE_AUTO(post_server, struct post_server, post_server_free)
#define auto_post_server auto_with(auto_clean_post_server) struct post_server *

uint16_t post_server_port(const struct post_server *c);
