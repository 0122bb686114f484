/* SPDX-License-Identifier: Apache-2.0 */
/* http_server.h - serves /metrics, /healthz and /status over HTTP, for scrapers, probes and people (libmicrohttpd).
 * home: any thread may start and free it. The callbacks run on its own thread, one at a time, and must not block for
 * long. Limits: 128 connections (the oldest makes room), 8 of an address (more are closed), 16 KiB of request. Only
 * GET and HEAD are served, and a body is never read. Plain HTTP: no page has a secret, nor a key of an object. */
#pragma once

#include "util/err.h"
#include "util/str.h"

struct http_server;

struct http_server_options {
    const char *listen; /* "127.0.0.1:9810", "[::1]:9810", ":9810" for every address; port 0: any */
    void *ctx;
    /* /healthz: true is 200; false is 503 with the sentence in `why`. NULL: always healthy. */
    bool (*is_healthy)(void *ctx, struct sbuf *why);
    /* /metrics: more families, after those of the process. NULL: none. */
    void (*metrics)(void *ctx, struct sbuf *text);
    /* /status: writes one JSON document into `json`. NULL: 404. */
    void (*status)(void *ctx, struct sbuf *json);
    unsigned silence_seconds; /* an idle connection is closed after them; 0: 10 */
};

/* Options are copied. An address in use is ERR_BUSY, a malformed one ERR_INVALID. */
must_check int http_server_start(const struct http_server_options *o, struct http_server **ret, struct err *err);
void http_server_free(struct http_server *s); /* closes open connections; NULL is fine */
DEFINE_AUTO(http_server, struct http_server, http_server_free)
#define auto_http_server auto_with(auto_clean_http_server) struct http_server *

uint16_t http_server_port(const struct http_server *s);
