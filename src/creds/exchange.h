/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.h - one small HTTP exchange with an identity or metadata server: sends a document and receives one.
 * home: the worker's loop. */
#pragma once

#include "io/worker.h"

struct exchange_request {
    const char *method;
    const char *url;
    const struct web_header *headers;
    size_t header_count;
    struct str body;
    struct str ca;            /* as in web_request */
    const char *connect_to;   /* as in web_request */
    uint64_t timeout_ns;      /* for the whole exchange; 0: 10 s */
    uint64_t *retry_after_ns; /* set before `done` if the reply has a Retry-After; may be NULL */
    void *ctx;
    /* Called once, never from within exchange_start. `err` NULL: a reply came, with `status` and `body` (borrowed).
     * The error names the URL's host and contains no request data. A clock skew of more than five minutes is an error
     * (CIS_CLOCK_SKEW). */
    void (*done)(void *ctx, int status, struct str body, const struct err *err);
};

void exchange_start(struct worker *w, const struct exchange_request *r);
