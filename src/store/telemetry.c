/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry.h"
#include "util/clock.h"
#include "util/metric.h"

struct telemetry {
    const char *scheme;
    struct metric *requests;
    struct metric *retries;
    struct metric *hedges;
    /* Looked up once, at open: each look-up of a series takes the lock of its metric. */
    struct metric_series *ok[STORE_OPS];      /* code 200 */
    struct metric_series *partial[STORE_OPS]; /* code 206 */
    struct metric_series *seconds[STORE_OPS];
    struct metric_series *first_byte[STORE_OPS];
};

static const char *const op_names[STORE_OPS] = {
    [STORE_OP_GET] = "GET",          [STORE_OP_HEAD] = "HEAD",         [STORE_OP_LIST] = "LIST",
    [STORE_OP_PUT] = "PUT",          [STORE_OP_PROBE] = "PROBE",       [STORE_OP_BEGIN] = "UPLOAD",
    [STORE_OP_PART] = "UPLOAD_PART", [STORE_OP_COMPLETE] = "COMPLETE", [STORE_OP_ABORT] = "ABORT_UPLOAD",
    [STORE_OP_SWEEP] = "SWEEP",      [STORE_OP_DELETE] = "DELETE",
};

const char *store_op_name(enum store_op op)
{
    return op_names[op];
}

struct telemetry *telemetry_new(const char *scheme)
{
    struct telemetry *t = xcalloc(1, sizeof *t);
    t->scheme = scheme;
    t->requests = metric_new(METRIC_COUNTER, "cistern_object_requests_total", "Requests of one copying process.",
                             "scheme,method,code", NULL);
    t->retries = metric_new(METRIC_COUNTER, "cistern_object_retries_total", "Retries of requests to object stores.",
                            "scheme,reason", NULL);
    t->hedges = metric_new(METRIC_COUNTER, "cistern_object_hedges_total",
                           "Reads that were sent twice, or given up before their end.", "scheme,result", NULL);
    struct metric *seconds =
        metric_new(METRIC_HISTOGRAM, "cistern_object_request_seconds", "Duration of a request to an object store.",
                   "scheme,method", metric_buckets_request);
    struct metric *first = metric_new(METRIC_HISTOGRAM, "cistern_object_first_byte_seconds",
                                      "Time to the first byte of an answer.", "scheme,method", metric_buckets_request);
    for (int op = 0; op < STORE_OPS; op++) {
        const char *method = store_op_name((enum store_op)op);
        t->ok[op] = metric_series(t->requests, scheme, method, "200");
        t->partial[op] = op == STORE_OP_GET ? metric_series(t->requests, scheme, method, "206") : t->ok[op];
        t->seconds[op] = metric_series(seconds, scheme, method);
        t->first_byte[op] = metric_series(first, scheme, method);
    }
    return t;
}

void telemetry_request(struct telemetry *t, enum store_op op, const char *code, uint64_t first_byte_ns,
                       uint64_t total_ns)
{
    struct str c = str_of(code);
    struct metric_series *s = str_eq(c, STR("200")) ? t->ok[op]
                              : str_eq(c, STR("206")) && op == STORE_OP_GET
                                  ? t->partial[op]
                                  : metric_series(t->requests, t->scheme, store_op_name(op), code);
    metric_add(s, 1);
    metric_observe(t->seconds[op], (double)total_ns / (double)NS_PER_SECOND);
    if (first_byte_ns)
        metric_observe(t->first_byte[op], (double)first_byte_ns / (double)NS_PER_SECOND);
}

void telemetry_hedge(struct telemetry *t, const char *result)
{
    metric_add(metric_series(t->hedges, t->scheme, result), 1);
}

void telemetry_retry(struct telemetry *t, const struct store_reply *why)
{
    const char *reason = why->slow_down ? "slow_down" : err_code_name((enum err_code) - why->code);
    metric_add(metric_series(t->retries, t->scheme, reason), 1);
}
