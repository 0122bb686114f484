/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange.h"
#include "creds/http_time.h"
#include "util/clock.h"

enum { ANSWER_MAX = 256 << 10 };
#define TIMEOUT_NS (10 * NS_PER_SECOND)

struct exchange {
    struct exchange_request r;
    struct web_job *job;
    char *body; /* owned */
    struct sbuf got;
    bool too_long;
};

static int on_body(void *ctx, const char *bytes, size_t len)
{
    struct exchange *x = ctx;
    sbuf_add(&x->got, (struct str){bytes, len});
    x->too_long = x->got.overflow;
    return x->too_long ? -ERR_CORRUPT : 0;
}

static void on_done(void *ctx, const struct web_result *result)
{
    struct exchange *x = ctx;
    struct err err;
    int64_t skew = http_time_skew_ns(web_reply_header(x->job, "date"));
    if (x->r.retry_after_ns)
        *x->r.retry_after_ns = http_time_retry_after_ns(web_reply_header(x->job, "retry-after"));
    if (x->too_long) {
        err_set(&err, ERR_CORRUPT, "the answer is longer than %d bytes", ANSWER_MAX);
        x->r.done(x->r.ctx, 0, STR_NULL, &err);
    } else if (result->code < 0) {
        x->r.done(x->r.ctx, 0, STR_NULL, &result->err);
    } else if (http_time_is_skew(skew)) {
        http_time_skew_error(skew, "the server's", &err);
        x->r.done(x->r.ctx, 0, STR_NULL, &err);
    } else {
        x->r.done(x->r.ctx, result->status, sbuf_str(&x->got), NULL);
    }
    if (x->got.ptr)
        explicit_bzero(x->got.ptr, x->got.len);
    if (x->body)
        explicit_bzero(x->body, x->r.body.len);
    sbuf_done(&x->got);
    free(x->body);
    free(x);
}

void exchange_start(struct worker *w, const struct exchange_request *r)
{
    struct exchange *x = xcalloc(1, sizeof *x);
    x->r = *r;
    x->body = r->body.len ? str_dup(r->body) : NULL;
    sbuf_init(&x->got, ANSWER_MAX);
    x->job = web_submit(w->web, &(struct web_request){.method = r->method,
                                                      .url = r->url,
                                                      .headers = r->headers,
                                                      .header_count = r->header_count,
                                                      .body = x->body,
                                                      .body_len = r->body.len,
                                                      .ca = r->ca,
                                                      .connect_to = r->connect_to,
                                                      .unguarded = true, /* no user chooses these servers */
                                                      .timeout_ns = r->timeout_ns ? r->timeout_ns : TIMEOUT_NS,
                                                      .ctx = x,
                                                      .on_body = on_body,
                                                      .on_done = on_done});
}
