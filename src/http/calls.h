/* SPDX-License-Identifier: Apache-2.0 */
/* calls.h - one POST call over HTTPS, for other machines (libmicrohttpd with GnuTLS).
 * home: one thread starts it, changes its certificate and frees it. The callback runs on the connection's own thread,
 * many at a time, and may block.
 *
 * Bounded: 256 connections, 64 of one address (more are closed at once), 16 KiB of head, 16 KiB of body, 10 s of
 * silence; a connection serves one call. TLS 1.2 at least. What is answered is wiped when it was sent. */
#pragma once

#include "util/err.h"
#include "util/str.h"

struct calls;

enum { CALLS_BODY_MAX = 16 << 10 };

struct calls_request {
    struct str authorization; /* the header's value; empty if there is none */
    struct str body;
    struct str peer; /* the address of who asks, in bytes: to count by */
};

struct calls_options {
    const char *listen; /* "127.0.0.1:8443", ":8443" for every address; port 0: any */
    const char *path;   /* of the call: static. GET /healthz answers too, for probes */
    void *ctx;
    /* Puts a JSON document into `answer` and returns the HTTP status. With *retry_after_seconds set, the answer says
     * when to come again. */
    unsigned (*call)(void *ctx, const struct calls_request *r, struct sbuf *answer, unsigned *retry_after_seconds);
    unsigned silence_seconds; /* after which a connection is closed; 0: 10 */
};

/* Listens; nothing is answered before the first certificate. An address in use is ERR_BUSY, a malformed one
 * ERR_INVALID. Options are copied. */
must_check int calls_open(const struct calls_options *o, struct calls **ret, struct err *err);

/* From here on new connections get this certificate (PEM, with what it takes to reach the authority) and `key`. Those
 * under way are finished with the old one first, for 30 s at most: so long it may block. ERR_INVALID changes
 * nothing. */
must_check int calls_set_certificate(struct calls *c, const char *certificate, const char *key, struct err *err);

/* Waits for the callbacks that run, NULL is fine. */
void calls_free(struct calls *c);
DEFINE_AUTO(calls, struct calls, calls_free)
#define auto_calls auto_with(auto_clean_calls) struct calls *

uint16_t calls_port(const struct calls *c);
