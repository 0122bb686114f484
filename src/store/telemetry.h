/* SPDX-License-Identifier: Apache-2.0 */
/* telemetry.h - the metrics of requests to a store; keeps the frequently used series. home: any thread. */
#pragma once

#include "backend.h"

struct telemetry *telemetry_new(const char *scheme); /* the caller frees it with free() */

/* Counts one request: `code` is the HTTP status as text, or the name of an error without a reply. */
void telemetry_request(struct telemetry *t, enum store_op op, const char *code, uint64_t first_byte_ns,
                       uint64_t total_ns);
void telemetry_hedge(struct telemetry *t, const char *result); /* "won", "lost", "failed", "given_up" */
void telemetry_retry(struct telemetry *t, const struct store_reply *why);
