/* SPDX-License-Identifier: Apache-2.0 */
/* serve.h - /metrics, /healthz and /status over HTTP, for scrapers, probes and people (libmicrohttpd).
 * home: any thread may start and free it; the callbacks run on its own thread, and must not block for long: one answer
 * at a time. Bounded: 32 connections (more wait to be accepted), 16 KiB of request, GET and HEAD only; a body is never
 * read. Plain HTTP, and nothing here is secret: no credential, and no object's name unless metrics a volume are asked
 * for. */
#pragma once

#include "util/err.h"
#include "util/str.h"

struct serve;

struct serve_options {
    const char *listen; /* "127.0.0.1:9810", "[::1]:9810", ":9810" for every address; port 0: any */
    void *ctx;
    /* /healthz: true answers 200; false answers 503 with the sentence put into `why`. NULL: always healthy. */
    bool (*is_healthy)(void *ctx, struct sbuf *why);
    /* /metrics: more families, behind the process's own. NULL: none. */
    void (*metrics)(void *ctx, struct sbuf *text);
    /* /status: puts one JSON document into `json`. NULL: there is no such page. */
    void (*status)(void *ctx, struct sbuf *json);
    unsigned silence_seconds; /* after which a connection is closed; 0: 10 */
};

/* Options are copied. An address in use is ERR_BUSY, a malformed one ERR_INVALID. */
must_check int serve_start(const struct serve_options *o, struct serve **ret, struct err *err);
void serve_free(struct serve *s); /* ends connections under way; NULL is fine */
DEFINE_AUTO(serve, struct serve, serve_free)
#define auto_serve auto_with(auto_clean_serve) struct serve *

uint16_t serve_port(const struct serve *s);
