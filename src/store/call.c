/* SPDX-License-Identifier: Apache-2.0 */
#include "call.h"
#include "denials.h"
#include "util/clock.h"
#include "util/log.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

/* Slower transfers than this in a stall timeout (30 s) are cancelled: a part of 8 MiB would take half a day. */
enum { STALL_BYTES = 4096 };

enum { URL_MAX = 16 << 10, WORDS_MAX = 64 << 10 };

static void submit(struct store_call *c);

static struct store_call *of_job(struct store_job *j)
{
    return container_of(j, struct store_call, job);
}

void call_init(struct store_call *c)
{
    c->web = NULL;
    c->identity = NULL;
    c->waiting = false;
    c->head = NULL;
    c->after_head = false;
    c->received = 0;
    c->kept_used = 0;
    sbuf_init(&c->url, URL_MAX);
    sbuf_init(&c->words, WORDS_MAX);
    sbuf_init(&c->sent, CALL_DOCUMENT_MAX);
    sbuf_init(&c->behind, 256);
    sbuf_init(&c->got, CALL_DOCUMENT_MAX);
}

void call_release(struct store_job *j)
{
    struct store_call *c = of_job(j);
    creds_identity_unref(c->identity);
    c->identity = NULL;
    sbuf_done(&c->url);
    sbuf_done(&c->words);
    sbuf_done(&c->sent);
    sbuf_done(&c->behind);
    sbuf_done(&c->got);
}

void call_end(struct store_call *c, int code)
{
    if (code < 0) {
        char name[STORE_JOB_NAME_MAX];
        enum err_id id = c->err.id;
        if (code == -ERR_CORRUPT && c->job.store->is_stranger) /* do not show its content to the user who chose it */
            snprintf(c->err.text, sizeof c->err.text, "the reply is not from an object store, or is damaged");
        err_wrap(&c->err, "%s", job_name(&c->job, name));
        c->err.id = id;
        c->job.reply.is_malformed = code == -ERR_CORRUPT;
        job_fail(&c->job, &c->err);
    }
    job_done(&c->job);
}

bool call_is_ours(const struct store_call *c, const struct store_reply *r)
{
    struct str mine = c->job.args.write.idempotency_token;
    return r->code == 0 && mine.len && str_eq(r->writer, mine);
}

void call_end_exists(struct store_call *c)
{
    err_set(&c->err, ERR_EXISTS,
            c->job.args.write.condition == STORE_IF_SAME ? "the object was replaced or deleted"
                                                         : "an object of this name exists already");
    call_end(c, err_advise(&c->err, CIS_OBJECT_EXISTS));
}

void call_end_contradicted(struct store_call *c)
{
    c->job.reply.may_retry = true;
    call_end(c, err_fail(&c->err, ERR_AGAIN, CIS_OBJECT_EXISTS,
                         "412: the store says that the object exists, but does not find it"));
}

/* ---- credentials ------------------------------------------------------------------------------------------------- */

static void credentials_ready(struct creds_waiter *w)
{
    struct store_call *c = container_of(w, struct store_call, waiter);
    c->waiting = false;
    c->identity = w->identity;
    if (c->job.cancelled) {
        call_end(c, err_set(&c->err, ERR_CANCELLED, "cancelled"));
    } else if (w->code < 0) {
        c->job.reply.may_retry = w->code == -ERR_AGAIN || w->code == -ERR_TIMEOUT || w->code == -ERR_IO;
        call_end(c, err_copy(&c->err, &w->err));
    } else {
        submit(c);
    }
}

void call_go(struct store_call *c, const struct call_steps *steps)
{
    c->steps = steps;
    if (!c->identity) {
        c->waiter = (struct creds_waiter){.home = c->job.worker->loop, .ready = credentials_ready};
        c->waiting = true;
        c->identity = creds_get(c->job.store->creds, c->job.worker, &c->waiter);
        if (!c->identity)
            return;
        c->waiting = false;
    }
    submit(c);
}

static void head_ended(void *ctx, const struct store_reply *r)
{
    struct store_call *c = ctx;
    c->head = NULL;
    c->job.reply.requests += r->requests;
    if (c->job.cancelled)
        call_end_as(c, r);
    else
        c->head_done(c, r);
}

void call_head(struct store_call *c, void (*head_done)(struct store_call *c, const struct store_reply *r))
{
    c->head_done = head_done;
    c->head = job_head(&c->job, head_ended, c);
}

void call_adopt(struct store_call *c, const struct store_reply *r)
{
    struct store_reply *mine = &c->job.reply, before = *mine;
    *mine = *r;
    mine->requests = before.requests;
    mine->heads = before.heads;
    mine->object.key = c->job.args.write.key;
    mine->object.etag = call_keep(c, r->object.etag);
    mine->owner = mine->writer = STR_NULL;
}

void call_end_as(struct store_call *c, const struct store_reply *r)
{
    call_adopt(c, r);
    job_done(&c->job);
}

/* ---- the exchange ------------------------------------------------------------------------------------------------ */

void call_header(struct store_call *c, const char *name, struct str value)
{
    assert(c->header_count < CALL_HEADERS_MAX);
    c->headers[c->header_count].name = name;
    c->headers[c->header_count].at = c->words.len;
    c->headers[c->header_count].len = value.len;
    c->header_count++;
    sbuf_add(&c->words, value);
}

struct str call_header_value(const struct store_call *c, size_t index)
{
    return (struct str){c->words.ptr + c->headers[index].at, c->headers[index].len};
}

bool call_is_ranged(const struct store_call *c)
{
    const struct job_args *a = &c->job.args;
    return a->len > 0 && (a->offset > 0 || a->len != a->object.size_bytes);
}

void call_header_range(struct store_call *c)
{
    char range[64];
    const struct job_args *a = &c->job.args;
    int n = snprintf(range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, a->offset, a->offset + a->len - 1);
    call_header(c, "range", (struct str){range, (size_t)n});
}

struct str call_answer_header(const struct store_call *c, const char *name)
{
    return web_reply_header(c->web, name);
}

struct str call_keep(struct store_call *c, struct str s)
{
    char *at = c->kept + c->kept_used;
    if (s.len > sizeof c->kept - c->kept_used)
        return STR_NULL;
    if (s.len)
        memcpy(at, s.ptr, s.len);
    c->kept_used += s.len;
    return (struct str){at, s.len};
}

/* If the store serves no request at all, its refused connections count as failures. */
static const uint64_t serves_ns = 5 * NS_PER_SECOND;

static void note_served(struct store_call *c)
{
    c->job.served_ns = loop_now_ns(c->job.worker->loop);
    atomic_store_explicit(&c->job.store->served_ns, c->job.served_ns, memory_order_relaxed);
}

static bool serves_others(const struct store_call *c)
{
    uint64_t served = atomic_load_explicit(&c->job.store->served_ns, memory_order_relaxed);
    return served != c->job.served_ns && clock_now_ns() < served + serves_ns;
}

static int on_head(void *ctx, struct web_job *web)
{
    struct store_call *c = ctx;
    int status = web_status(web);
    note_served(c);
    c->success = status >= 200 && status < 300;
    sbuf_clear(&c->got);
    if (c->success)
        atomic_store_explicit(&c->job.store->success_ns, clock_now_ns(), memory_order_relaxed);
    if (c->success)
        denials_note_success(c->job.store->denials, c->job.op);
    if (!c->success || !c->steps->head)
        return 0;
    return c->steps->head(c);
}

static int on_body(void *ctx, const char *bytes, size_t len)
{
    struct store_call *c = ctx;
    note_served(c);
    if (c->success && c->steps->body)
        return c->steps->body(c, bytes, len);
    size_t most = c->success ? CALL_DOCUMENT_MAX : CALL_REFUSAL_MAX;
    if (len > most - c->got.len)
        return err_fail(&c->err, ERR_CORRUPT, CIS_REPLY_INVALID, "the answer (%d) is a document of more than %zu bytes",
                        web_status(c->web), most);
    sbuf_add(&c->got, (struct str){bytes, len});
    return 0;
}

int call_give(struct store_call *c, const char *bytes, size_t len)
{
    const struct job_args *a = &c->job.args;
    if (len > a->len - c->received)
        return err_fail(&c->err, ERR_CORRUPT, CIS_REPLY_INVALID,
                        "the reply has more than the %" PRIu64 " requested bytes", a->len);
    int r = a->on_data(c->job.ctx, bytes, len);
    c->job.race.moved = true;
    c->job.race.paused = r == WEB_PAUSE;
    if (r == 0)
        c->job.race.taken = c->received += len;
    else if (r < 0)
        err_set(&c->err, (enum err_code) - r, "given up by the reader");
    return r;
}

int call_check_whole(struct store_call *c)
{
    if (c->received == c->job.args.len)
        return 0;
    c->job.reply.may_retry = true;
    return err_fail(&c->err, ERR_IO, CIS_CONNECTION_LOST, "the answer ended after %" PRIu64 " of %" PRIu64 " bytes",
                    c->received, c->job.args.len);
}

/* Sends the text before the body, the body, then the text after it: as much of one of them as fits. */
static ssize_t read_body(void *ctx, char *buf, size_t room)
{
    struct store_call *c = ctx;
    const struct store_body *b = &c->job.args.body;
    uint64_t at = c->sent_offset;
    ssize_t n;
    if (at < c->sent.len || at - c->sent.len >= b->len) {
        struct str piece = at < c->sent.len ? str_sub(sbuf_str(&c->sent), at, room)
                                            : str_sub(sbuf_str(&c->behind), at - c->sent.len - b->len, room);
        if (piece.len)
            memcpy(buf, piece.ptr, piece.len);
        n = (ssize_t)piece.len;
    } else {
        n = b->read(b->ctx, buf, min_u64(room, b->len - (at - c->sent.len)), at - c->sent.len);
    }
    if (n < 0)
        err_set(&c->err, ERR_CANCELLED, "given up by the writer");
    if (n > 0)
        c->sent_offset += (uint64_t)n;
    return n;
}

static int seek_body(void *ctx, uint64_t offset)
{
    struct store_call *c = ctx;
    c->sent_offset = offset;
    return 0;
}

/* A server that has answered no request may want TLS: it closes a connection without TLS, or sends bytes that are not
 * HTTP. Other servers do so for a moment, while they restart. */
enum { SILENT_ATTEMPTS_MAX = 6 };

static void note_silence(struct store_call *c, const struct web_result *r)
{
    if (store_has_answered(c->job.store) || !str_starts(sbuf_str(&c->url), STR("http://")) ||
        !(r->closed || r->code == -ERR_CORRUPT))
        return;
    if (c->job.store->retry.attempts_max <= STORE_ATTEMPTS_DEFAULT) /* who asks for more attempts gets them */
        c->job.reply.attempts_max = SILENT_ATTEMPTS_MAX;
    err_advise(&c->err, CIS_ENDPOINT_WITH_TLS);
}

/* Handles an exchange without a reply. A lost connection may recover; a refusal by this process will not. */
static void failed(struct store_call *c, const struct web_result *r)
{
    bool ours = c->err.code != 0;
    if (!ours)
        err_copy(&c->err, &r->err);
    c->job.reply.may_retry = !ours && (r->code == -ERR_IO || r->code == -ERR_TIMEOUT || r->code == -ERR_AGAIN);
    if (!ours)
        note_silence(c, r);
    call_end(c, -(int)c->err.code);
}

/* The key instead of the URL: an endpoint's URL may hold credentials. */
static void log_request(const struct store_call *c, const char *status, uint64_t total_ns)
{
    char name[STORE_JOB_NAME_MAX];
    if (log_wants(LOG_DEBUG))
        log_event(LOG_DEBUG, "request", "method", c->method, "operation", store_op_name(c->job.op), "object",
                  job_name(&c->job, name), "status", status, "ms", log_u64(total_ns / NS_PER_MS), "attempt",
                  log_u64(c->job.attempt), NULL);
}

static void on_done(void *ctx, const struct web_result *r)
{
    struct store_call *c = ctx;
    char number[16];
    snprintf(number, sizeof number, "%d", r->status);
    const char *status = r->code < 0 ? err_code_name((enum err_code) - r->code) : number;
    job_count_request(&c->job, status, r->first_byte_ns, r->total_ns);
    log_request(c, status, r->total_ns);
    if (r->sends > 1)
        c->job.reply.requests += r->sends - 1;
    c->job.reply.status = r->code < 0 ? 0 : r->status;
    c->job.reply.turned_away = r->turned_away && serves_others(c);
    if (r->code < 0)
        failed(c, r);
    else
        c->steps->answered(c, r->status);
}

int call_garbled(struct err *err)
{
    err->code = ERR_CORRUPT; /* a field that a parser calls invalid came from the store, not from the caller */
    return err_advise(err, CIS_REPLY_INVALID);
}

/* The only check of credentials against the destination. A signature is valid for one request; a bearer token works
 * for every holder. */
static int may_be_shown(struct store_call *c)
{
    if (!c->identity->bearer || !c->job.store->is_stranger)
        return 0;
    return err_fail(&c->err, ERR_DENIED, CIS_TOKEN_WITHHELD,
                    "no token is sent to an endpoint that is neither the provider's nor a trusted one");
}

static void submit(struct store_call *c)
{
    struct web_header headers[CALL_HEADERS_MAX];
    c->err = (struct err){0};
    c->header_count = 0;
    c->method = "GET";
    c->sends_body = c->success = false;
    c->sent_offset = c->received = 0;
    sbuf_clear(&c->url);
    sbuf_clear(&c->words);
    sbuf_clear(&c->sent);
    sbuf_clear(&c->behind);
    sbuf_clear(&c->got);
    if (may_be_shown(c) == 0)
        c->steps->build(c);
    if (!c->err.code && (c->url.overflow || c->words.overflow || c->sent.overflow))
        err_set(&c->err, ERR_INVALID, "the request is too long for any store");
    if (c->err.code) {
        call_end(c, -(int)c->err.code);
        return;
    }
    for (size_t i = 0; i < c->header_count; i++)
        headers[i] = (struct web_header){c->headers[i].name, call_header_value(c, i)};
    const struct web_request request = {
        .method = c->method,
        .url = c->url.ptr,
        .headers = headers,
        .header_count = c->header_count,
        .body = c->sent.len && !c->sends_body ? c->sent.ptr : NULL,
        .body_len = c->sent.len + (c->sends_body ? c->job.args.body.len + c->behind.len : 0),
        .body_read = c->sends_body ? read_body : NULL,
        .body_seek = c->sends_body ? seek_body : NULL,
        .new_connection = c->job.args.new_connection,
        .once = c->after_head,
        .expect_bytes = c->job.args.len,
        .rate = c->job.args.rate,
        .stall_bytes = c->job.op == STORE_OP_COMPLETE ? 0 : STALL_BYTES, /* it takes minutes, and only spaces arrive */
        .ctx = c,
        .on_head = on_head,
        .on_body = on_body,
        .on_done = on_done,
    };
    c->web = web_submit(c->job.worker->web, &request);
    job_asked(&c->job);
}

void call_stop(struct store_job *j)
{
    struct store_call *c = of_job(j);
    if (c->head)
        store_cancel(c->head);
    else if (!c->waiting && c->web)
        web_cancel(c->web);
}

void call_resume(struct store_job *j)
{
    struct store_call *c = of_job(j);
    if (!c->waiting && c->web)
        web_resume(c->web);
}
