/* SPDX-License-Identifier: Apache-2.0 */
/* What HTTP says, in the alphabet of the house: the one table of that translation. */
#include "call.h"
#include "refusal.h"
#include "timing.h"
#include "util/clock.h"
#include <ctype.h>
#include <stdio.h>

enum { CODE_MAX = 64 }; /* of S3's, the longest has 42 */

static const struct rule {
    int status;
    enum err_code code;
    unsigned id;
    bool may_retry;
    bool slow_down;
    const char *words; /* where the store has none of its own */
    const char *advice;
} rules[] = {
    {307, ERR_AGAIN, 1301, true, false, "the bucket is being moved", "try again later"},
    {400, ERR_INVALID, 1400, false, false, "the store does not accept the request", "report it with the store's words"},
    {401, ERR_DENIED, 1401, false, false, "the store does not know us",
     "check the credentials: they are missing, wrong or expired"},
    {404, ERR_NOT_FOUND, 1404, false, false, "there is no such object", ""},
    {405, ERR_UNSUPPORTED, 1420, false, false, "the store does not do that", "use another store for it"},
    {408, ERR_TIMEOUT, 1408, true, false, "the store waited too long for us", "try again"},
    {409, ERR_AGAIN, 1410, true, false, "another request on the same object is under way", "try again"},
    {410, ERR_NOT_FOUND, 1404, false, false, "the object is gone", ""},
    {412, ERR_CHANGED, 1409, false, false, "the object changed", ""},
    {416, ERR_CHANGED, 1409, false, false, "the object is shorter than when it was listed", ""},
    {429, ERR_AGAIN, 1429, true, true, "too many requests", "lower the concurrency"},
    {500, ERR_AGAIN, 1500, true, false, "the store failed", "try again later"},
    {501, ERR_UNSUPPORTED, 1420, false, false, "the store does not do that", "use another store for it"},
    {502, ERR_AGAIN, 1500, true, false, "the store failed", "try again later"},
    {503, ERR_AGAIN, 1429, true, true, "the store asks for fewer requests", "lower the concurrency"},
    {504, ERR_AGAIN, 1500, true, false, "the store failed", "try again later"},
};

static const struct rule *rule_of(int status)
{
    static const struct rule other = {
        0, ERR_IO, 1500, false, false, "the store gave an answer that none gives", "check the endpoint"};
    for (size_t i = 0; i < countof(rules); i++)
        if (rules[i].status == status)
            return &rules[i];
    return &other;
}

struct status_words call_words(const struct call *c, int status, struct str code, struct str message)
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
           ((w->status == 403 || w->status == 401) && timing_is_skew(skew));
}

static int denied(struct call *c, const struct status_words *w)
{
    err_set(&c->err, ERR_DENIED, "%d %.*s: %s denied%s%.*s", w->status, STR_FMT(w->code),
            w->right ? w->right : "access", w->message.len ? ": " : "", (int)min_u64(w->message.len, 160),
            w->message.ptr ? w->message.ptr : "");
    return err_advise(&c->err, 1403, "grant %s to %s, or use other credentials", w->right ? w->right : "access",
                      creds_source_name(c->creds));
}

/* A session that lapsed is an old one. A young one would be replaced by its like, and each object that is nobody's to
 * read would cost an exchange. */
#define RENEW_AGE_NS (60 * (int64_t)NS_PER_SECOND)

void call_refused(struct call *c, bool renew)
{
    bool is_old = clock_wall_ns() - c->identity->born_ns > RENEW_AGE_NS;
    bool renewed = (renew || is_old) && creds_reject(c->creds, c->identity);
    c->job.reply.attempts_max = refusal_attempts(c->job.store->refusals, c->job.op, renewed);
}

bool call_is_redirect(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* A redirect that was not followed. What it points to may carry somebody's signature behind the '?'. */
static int elsewhere(struct call *c, const struct rule *rule, int status, struct str to)
{
    to = c->job.store->is_stranger ? STR("another server") : str_sub(to, 0, min_u64((size_t)str_find(to, '?'), 200));
    err_set(&c->err, rule->code, "%d: it points to '%.*s', and what is signed for this store goes nowhere else", status,
            STR_FMT(to));
    return err_advise(&c->err, 1301,
                      "if the bucket is there, give that as the endpoint; if not, look for a proxy between");
}

int call_status(struct call *c, const struct status_words *w)
{
    const struct rule *rule = rule_of(w->status);
    c->job.reply.may_retry = rule->may_retry;
    c->job.reply.slow_down = rule->slow_down;
    c->job.reply.retry_after_ns = rule->may_retry ? timing_retry_after_ns(call_answer_header(c, "retry-after")) : 0;
    int64_t skew = timing_skew_ns(call_answer_header(c, "date"));
    if (is_skew(w, skew))
        return timing_skewed(skew, "the store's", &c->err);
    struct str location = call_answer_header(c, "location");
    if (call_is_redirect(w->status) && location.len)
        return elsewhere(c, rule, w->status, location);
    if (w->status == 401 || w->status == 403)
        call_refused(c, w->status == 401);
    if (w->status == 403)
        return denied(c, w);
    struct str message = w->message.len ? w->message : str_of(rule->words);
    err_set(&c->err, rule->code, "%d%s%.*s: %.*s", w->status, w->code.len ? " " : "", STR_FMT(w->code),
            (int)min_u64(message.len, 200), message.ptr);
    return rule->code == ERR_CHANGED ? object_outdated(&c->err) : err_advise(&c->err, rule->id, "%s", rule->advice);
}
