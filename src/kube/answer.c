/* SPDX-License-Identifier: Apache-2.0 */
#include "answer.h"
#include "util/clock.h"

/* Limit of a Retry-After. */
#define RETRY_AFTER_MAX_NS (30 * NS_PER_SECOND)

static const struct answer_meaning {
    const char *reason; /* of metav1.Status; NULL: any, the HTTP status decides */
    int http;           /* 0: any */
    enum err_code code;
    enum err_id advice; /* 0: none */
} meanings[] = {
    {"AlreadyExists", 0, ERR_EXISTS, 0},
    {"Conflict", 0, ERR_CHANGED, 0},
    {"NotFound", 0, ERR_NOT_FOUND, 0},
    {"Forbidden", 0, ERR_DENIED, CIS_API_DENIED},
    {"Unauthorized", 0, ERR_DENIED, CIS_API_DENIED},
    {"Invalid", 0, ERR_INVALID, CIS_API_OBJECT_INVALID},
    {"BadRequest", 0, ERR_INVALID, CIS_API_OBJECT_INVALID},
    {"Expired", 0, ERR_AGAIN, 0},
    {"Gone", 0, ERR_AGAIN, 0},
    {"TooManyRequests", 0, ERR_AGAIN, CIS_API_SERVER_BUSY},
    {"Timeout", 0, ERR_TIMEOUT, CIS_API_SERVER_BUSY},
    {"ServerTimeout", 0, ERR_TIMEOUT, CIS_API_SERVER_BUSY},
    {"RequestEntityTooLarge", 0, ERR_INVALID, CIS_API_OBJECT_INVALID},
    {NULL, 400, ERR_INVALID, CIS_API_OBJECT_INVALID},
    {NULL, 401, ERR_DENIED, CIS_API_DENIED},
    {NULL, 403, ERR_DENIED, CIS_API_DENIED},
    {NULL, 405, ERR_UNSUPPORTED, 0},
    {NULL, 406, ERR_UNSUPPORTED, 0},
    {NULL, 408, ERR_TIMEOUT, CIS_API_SERVER_BUSY},
    {NULL, 409, ERR_CHANGED, 0},
    {NULL, 410, ERR_AGAIN, 0},
    {NULL, 413, ERR_INVALID, CIS_API_OBJECT_INVALID},
    {NULL, 415, ERR_UNSUPPORTED, 0},
    {NULL, 422, ERR_INVALID, CIS_API_OBJECT_INVALID},
    {NULL, 429, ERR_AGAIN, CIS_API_SERVER_BUSY},
    {NULL, 504, ERR_TIMEOUT, CIS_API_SERVER_BUSY},
};

/* A kind that is not installed, or a reply of a proxy. */
static const struct answer_meaning not_served = {NULL, 404, ERR_UNSUPPORTED, CIS_API_REPLY_INVALID};
static const struct answer_meaning failing = {NULL, 500, ERR_AGAIN, CIS_API_SERVER_BUSY};
static const struct answer_meaning strange = {NULL, 0, ERR_CORRUPT, 0};

/* A deleted object may mean that data is deleted: only a Status that names the object counts. */
static const struct answer_meaning *meaning_of(struct str reason, int http, bool names_object)
{
    bool missing = str_eq(reason, STR("NotFound")) || (!reason.len && http == 404);
    if (missing && !names_object)
        return &not_served;
    for (size_t i = 0; i < countof(meanings); i++)
        if (meanings[i].reason ? str_eq(reason, str_of(meanings[i].reason)) : meanings[i].http == http)
            return &meanings[i];
    return http >= 500 ? &failing : &strange;
}

static int not_kubernetes(const struct answer *a, const char *why, struct err *err)
{
    return err_fail(err, ERR_CORRUPT, CIS_API_REPLY_INVALID, "cannot %s: the reply (HTTP %d, '%.*s') %s", a->what,
                    a->http, (int)min_u64(a->type.len, 60), a->type.ptr ? a->type.ptr : "", why);
}

/* Seconds, or a date. */
static void read_retry_after(struct str text, struct answer_outcome *out)
{
    uint64_t seconds;
    int64_t date;
    if (!text.len)
        return;
    if (str_to_u64(text, &seconds, ERR_IGNORED) == 0)
        out->retry_after_ns = min_u64(seconds, 3600) * NS_PER_SECOND;
    else if (time_parse_http(text, &date))
        out->retry_after_ns = date > clock_wall_ns() ? (uint64_t)(date - clock_wall_ns()) : 0;
    else
        return;
    out->has_retry_after = true;
    out->retry_after_ns = min_u64(out->retry_after_ns, RETRY_AFTER_MAX_NS);
}

static int fail_with(const char *what, int http, const json *status, struct answer_outcome *out, struct err *err)
{
    struct str reason = json_member_str(status, "reason"), message = json_member_str(status, "message");
    struct str object = json_member_str(json_at(status, "details"), "name");
    const struct answer_meaning *m = meaning_of(reason, http, object.len > 0);
    out->unknown_to_server = http == 401;
    out->is_expired = http == 410 || str_eq(reason, STR("Expired")) || str_eq(reason, STR("Gone"));
    if (message.len)
        err_set(err, m->code, "cannot %s: %.*s", what, STR_FMT(message));
    else
        err_set(err, m->code, "cannot %s: the API server returned HTTP %d", what, http);
    return m->advice ? err_advise_by_id(err, m->advice) : -(int)m->code;
}

int answer_of_status(const char *what, const json *status, struct answer_outcome *out, struct err *err)
{
    uint64_t http = 0;
    *out = (struct answer_outcome){0};
    if (json_opt_u64(status, "code", &http, ERR_IGNORED) < 0 || http > 999)
        http = 0;
    return fail_with(what, (int)http, status, out, err);
}

static bool is_json(struct str type)
{
    struct str json_type = STR("application/json");
    return str_eq_nocase(str_sub(type, 0, json_type.len), json_type) &&
           (type.len == json_type.len || type.ptr[json_type.len] == ';');
}

int answer_read(const struct answer *a, json **ret, struct answer_outcome *out, struct err *err)
{
    auto_json j = NULL;
    struct err why;
    *out = (struct answer_outcome){0};
    read_retry_after(a->retry, out);
    bool good = a->http >= 200 && a->http < 300;
    bool parsed = is_json(a->type) && json_parse_any_text(a->body, "the answer", &j, &why) == 0;
    if (!good) /* the status is enough, even of a proxy's HTML page */
        return fail_with(a->what, a->http, parsed ? j : NULL, out, err);
    if (!is_json(a->type))
        return not_kubernetes(a, "is not JSON", err);
    if (!parsed)
        return not_kubernetes(a, "is invalid JSON", err);
    if (!json_member_str(j, "kind").len)
        return not_kubernetes(a, "is not a Kubernetes object", err);
    *ret = take(&j);
    return 0;
}
