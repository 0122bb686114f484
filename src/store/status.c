/* SPDX-License-Identifier: Apache-2.0 */
/* Translates HTTP statuses into error codes: the only table that does. */
#include "call.h"
#include "creds/http_time.h"
#include "denials.h"
#include "util/clock.h"
#include <ctype.h>

enum { CODE_MAX = 64 }; /* of S3's, the longest has 42 */

static const struct status_rule {
    int status;
    enum err_code code;
    enum err_id id;
    bool may_retry;
    bool slow_down;
    const char *words; /* where the store sent none */
} rules[] = {
    {307, ERR_AGAIN, CIS_WRONG_REGION, true, false, "the bucket is being moved"},
    {400, ERR_INVALID, CIS_REQUEST_REJECTED, false, false, "request rejected"},
    {401, ERR_DENIED, CIS_CREDENTIALS_REJECTED, false, false, "the credentials are missing, wrong or expired"},
    {404, ERR_NOT_FOUND, CIS_OBJECT_NOT_FOUND, false, false, "the object does not exist"},
    {405, ERR_UNSUPPORTED, CIS_STORE_UNSUPPORTED, false, false, "the store does not support this request"},
    {407, ERR_DENIED, CIS_PROXY_INVALID, false, false, "the proxy wants credentials"},
    {408, ERR_TIMEOUT, CIS_STORE_TIMEOUT, true, false, "the request did not reach the store in time"},
    {409, ERR_AGAIN, CIS_OBJECT_BUSY, true, false, "another request on this object is in progress"},
    {410, ERR_NOT_FOUND, CIS_OBJECT_NOT_FOUND, false, false, "the object was deleted"},
    {412, ERR_CHANGED, CIS_OBJECT_CHANGED, false, false, "the object changed"},
    {416, ERR_CHANGED, CIS_OBJECT_CHANGED, false, false, "the object is shorter than when it was listed"},
    {429, ERR_AGAIN, CIS_STORE_THROTTLED, true, true, "too many requests"},
    {500, ERR_AGAIN, CIS_STORE_FAILED, true, false, "the store failed"},
    {501, ERR_UNSUPPORTED, CIS_STORE_UNSUPPORTED, false, false, "the store does not support this request"},
    {502, ERR_AGAIN, CIS_STORE_FAILED, true, false, "the store failed"},
    {503, ERR_AGAIN, CIS_STORE_THROTTLED, true, true, "the store asks for fewer requests"},
    {504, ERR_AGAIN, CIS_STORE_FAILED, true, false, "the store failed"},
    {507, ERR_NO_SPACE, CIS_STORE_FULL, false, false, "the store has no space left"},
    {511, ERR_DENIED, CIS_REPLY_INVALID, false, false, "the network wants a login first"},
};

static const struct status_rule *rule_of(int status)
{
    static const struct status_rule rejected = {0, ERR_IO, CIS_REPLY_INVALID, false, false, "unexpected status"},
                                    failed = {0, ERR_IO, CIS_STORE_FAILED, false, false, "unexpected status"};
    for (size_t i = 0; i < countof(rules); i++)
        if (rules[i].status == status)
            return &rules[i];
    return status < 500 ? &rejected : &failed;
}

bool call_status_slows_down(int status)
{
    return rule_of(status)->slow_down;
}

struct status_words call_words(const struct store_call *c, int status, struct str code, struct str message)
{
    size_t len = 0;
    while (len < code.len && len < CODE_MAX && (isalnum((unsigned char)code.ptr[len]) || code.ptr[len] == '.'))
        len++;
    return (struct status_words){
        .status = status, .code = str_sub(code, 0, len), .message = c->job.store->is_stranger ? STR_NULL : message};
}

/* Clocks that are apart make every signature and every assertion invalid. A HEAD has no document to say so. */
static bool is_skew(const struct status_words *w, int64_t skew)
{
    return str_eq(w->code, STR("RequestTimeTooSkewed")) || str_eq(w->code, STR("RequestInTheFuture")) ||
           ((w->status == 403 || w->status == 401) && http_time_is_skew(skew));
}

/* The operation whose permission this request needs: a job may send requests of other kinds. */
static enum store_op operation_of(const struct store_call *c)
{
    if (strcmp(c->method, "HEAD") == 0) /* also a part of a write */
        return STORE_OP_HEAD;
    if (c->job.op == STORE_OP_SWEEP || c->job.op == STORE_OP_ABORT)
        return strcmp(c->method, "DELETE") == 0 ? STORE_OP_ABORT : STORE_OP_SWEEP;
    return c->job.op;
}

static int denied(struct store_call *c, const struct status_words *w)
{
    const char *permission = c->job.store->backend->permissions[operation_of(c)];
    permission = permission ? permission : "access";
    return err_fail(&c->err, ERR_DENIED, CIS_ACCESS_DENIED, "%d%s%.*s: %s denied to %s%s%.*s", w->status,
                    w->code.len ? " " : "", STR_FMT(w->code), permission, creds_source_name(c->job.store->creds),
                    w->message.len ? ": " : "", (int)min_u64(w->message.len, 160),
                    w->message.ptr ? w->message.ptr : "");
}

/* Renew old sessions only: for a young one each forbidden object would cost a token exchange. */
#define RENEW_AGE_NS (60 * (int64_t)NS_PER_SECOND)

void call_refused(struct store_call *c, bool renew)
{
    bool is_old = clock_wall_ns() - c->identity->born_ns > RENEW_AGE_NS;
    bool renewed = (renew || is_old) && creds_reject(c->job.store->creds, c->identity);
    c->job.reply.attempts_max = denials_attempts_max(c->job.store->denials, c->job.op, renewed);
}

int call_refused_by_proxy(struct store_call *c)
{
    c->job.reply.may_retry = true;
    return err_fail(&c->err, ERR_AGAIN, CIS_REPLY_INVALID, "404: the reply is not from an object store");
}

bool call_is_redirect(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* A redirect that was not followed. Its query may hold a signature. */
static int elsewhere(struct store_call *c, const struct status_rule *rule, int status, struct str to)
{
    to = c->job.store->is_stranger ? STR("another server") : str_sub(to, 0, min_u64((size_t)str_find(to, '?'), 200));
    return err_fail(&c->err, rule->code, CIS_WRONG_REGION,
                    "%d: redirect to '%.*s' not followed: a signed request goes to its store only", status,
                    STR_FMT(to));
}

/* Go, nginx and Apache answer a request without TLS on a port with TLS in these words. */
static bool wants_tls(const struct store_call *c, int status)
{
    static const char *const words[] = {"HTTPS server", "HTTPS port", "SSL-enabled server"};
    bool is_plain = str_starts(sbuf_str(&c->url), STR("http://"));
    for (size_t i = 0; status == 400 && is_plain && c->got.len && i < countof(words); i++)
        if (strstr(c->got.ptr, words[i]))
            return true;
    return false;
}

int call_status(struct store_call *c, const struct status_words *w)
{
    const struct status_rule *rule = rule_of(w->status);
    c->job.reply.may_retry = rule->may_retry;
    c->job.reply.slow_down = rule->slow_down;
    c->job.reply.retry_after_ns = rule->may_retry ? http_time_retry_after_ns(call_answer_header(c, "retry-after")) : 0;
    int64_t skew = http_time_skew_ns(call_answer_header(c, "date"));
    if (is_skew(w, skew))
        return http_time_skew_error(skew, "the store's", &c->err);
    struct str location = call_answer_header(c, "location");
    if (call_is_redirect(w->status) && location.len)
        return elsewhere(c, rule, w->status, location);
    if (wants_tls(c, w->status))
        return err_fail(&c->err, ERR_INVALID, CIS_ENDPOINT_WITH_TLS, "400: the port of the endpoint has TLS");
    if (w->status == 400 && strcmp(c->method, "HEAD") == 0)
        return err_fail(&c->err, ERR_INVALID, CIS_REJECTED_WITHOUT_REASON,
                        "400: HEAD rejected, and a reply to HEAD has no reason");
    if (w->status == 401 || w->status == 403)
        call_refused(c, w->status == 401);
    if (w->status == 403)
        return denied(c, w);
    struct str message = w->message.len ? w->message : str_of(rule->words);
    err_set(&c->err, rule->code, "%d%s%.*s: %.*s", w->status, w->code.len ? " " : "", STR_FMT(w->code),
            (int)min_u64(message.len, 200), message.ptr);
    return rule->code == ERR_CHANGED ? store_object_outdated(&c->err) : err_advise_by_id(&c->err, rule->id);
}
