/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.h - one small HTTP exchange with an identity or metadata server: a document there, a document back.
 * home: the worker's loop. */
#pragma once

#include "io/worker.h"

struct exchange_request {
    const char *method;
    const char *url;
    const struct web_header *headers;
    size_t header_count;
    struct str body;
    void *ctx;
    /* Once, never from within exchange_start. `err` NULL: an answer came, with `status` and `body` (borrowed). The
     * error's sentence names the URL's host and holds nothing of what was sent. */
    void (*done)(void *ctx, int status, struct str body, const struct err *err);
};

void exchange_start(struct worker *w, const struct exchange_request *r);
