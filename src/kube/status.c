/* SPDX-License-Identifier: Apache-2.0 */
#include "status.h"
#include "util/clock.h"

/* A server that asks for more patience than this is asked again all the same. */
#define RETRY_AFTER_MAX_NS (30 * NS_PER_SECOND)

enum advice { NONE, DENIED, REFUSED, LATER, ELSEWHERE };

static const struct meaning {
    const char *reason; /* of metav1.Status; NULL: any, the HTTP status alone speaks */
    int http;           /* 0: any */
    enum err_code code;
    enum advice advice;
} meanings[] = {
    {"AlreadyExists", 0, ERR_EXISTS, NONE},
    {"Conflict", 0, ERR_CHANGED, NONE},
    {"NotFound", 0, ERR_NOT_FOUND, NONE},
    {"Forbidden", 0, ERR_DENIED, DENIED},
    {"Unauthorized", 0, ERR_DENIED, DENIED},
    {"Invalid", 0, ERR_INVALID, REFUSED},
    {"BadRequest", 0, ERR_INVALID, REFUSED},
    {"Expired", 0, ERR_AGAIN, NONE},
    {"Gone", 0, ERR_AGAIN, NONE},
    {"TooManyRequests", 0, ERR_AGAIN, LATER},
    {"Timeout", 0, ERR_TIMEOUT, LATER},
    {"ServerTimeout", 0, ERR_TIMEOUT, LATER},
    {"RequestEntityTooLarge", 0, ERR_INVALID, REFUSED},
    {NULL, 400, ERR_INVALID, REFUSED},
    {NULL, 401, ERR_DENIED, DENIED},
    {NULL, 403, ERR_DENIED, DENIED},
    {NULL, 405, ERR_UNSUPPORTED, NONE},
    {NULL, 406, ERR_UNSUPPORTED, NONE},
    {NULL, 408, ERR_TIMEOUT, LATER},
    {NULL, 409, ERR_CHANGED, NONE},
    {NULL, 410, ERR_AGAIN, NONE},
    {NULL, 413, ERR_INVALID, REFUSED},
    {NULL, 415, ERR_UNSUPPORTED, NONE},
    {NULL, 422, ERR_INVALID, REFUSED},
    {NULL, 429, ERR_AGAIN, LATER},
    {NULL, 504, ERR_TIMEOUT, LATER},
};

/* Of a kind that is not installed, or of somebody between us and the server. */
static const struct meaning not_served = {NULL, 404, ERR_UNSUPPORTED, ELSEWHERE};
static const struct meaning failing = {NULL, 500, ERR_AGAIN, LATER};
static const struct meaning strange = {NULL, 0, ERR_CORRUPT, NONE};

/* That an object is gone decides whether data goes: only a Status that names the object says so. */
static const struct meaning *meaning_of(struct str reason, int http, bool names_object)
{
    bool missing = str_eq(reason, STR("NotFound")) || (!reason.len && http == 404);
    if (missing && !names_object)
        return &not_served;
    for (size_t i = 0; i < countof(meanings); i++)
        if (meanings[i].reason ? str_eq(reason, str_of(meanings[i].reason)) : meanings[i].http == http)
            return &meanings[i];
    return http >= 500 ? &failing : &strange;
}

static int advise(enum advice advice, struct err *err)
{
    switch (advice) {
    case DENIED:
        return err_advise(err, 5003, "check the service account's roles");
    case REFUSED:
        return err_advise(err, 5006, "the API server does not take this object");
    case LATER:
        return err_advise(err, 5005, "it is asked again");
    case ELSEWHERE:
        return err_advise(err, 5004, "check that its kind is installed, and any proxy between");
    case NONE:
        break;
    }
    return -(int)err->code;
}

static int not_ours(const struct answer *a, const char *why, struct err *err)
{
    err_set(err, ERR_CORRUPT, "cannot %s: the answer (HTTP %d, '%.*s') %s", a->what, a->http,
            (int)min_u64(a->type.len, 60), a->type.ptr ? a->type.ptr : "", why);
    return err_advise(err, 5004, "check the server's address and any proxy between");
}

/* Seconds, or a date. */
static void read_retry_after(struct str text, struct answer_outcome *out)
{
    uint64_t seconds;
    int64_t date;
    struct err ignored;
    if (!text.len)
        return;
    if (str_to_u64(text, &seconds, &ignored) == 0)
        out->retry_after_ns = min_u64(seconds, 3600) * NS_PER_SECOND;
    else if (time_parse_http(text, &date, &ignored) == 0)
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
    const struct meaning *m = meaning_of(reason, http, object.len > 0);
    out->unknown_to_server = http == 401;
    out->is_expired = http == 410 || str_eq(reason, STR("Expired")) || str_eq(reason, STR("Gone"));
    if (message.len)
        err_set(err, m->code, "cannot %s: %.*s", what, STR_FMT(message));
    else
        err_set(err, m->code, "cannot %s: the API server answers HTTP %d", what, http);
    return advise(m->advice, err);
}

int answer_of_status(const char *what, const json *status, struct answer_outcome *out, struct err *err)
{
    uint64_t http = 0;
    struct err ignored;
    *out = (struct answer_outcome){0};
    if (json_opt_u64(status, "code", &http, &ignored) < 0 || http > 999)
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
    bool parsed = is_json(a->type) && json_parse(a->body, "the answer", &j, &why) == 0;
    if (!good) /* a proxy's page of HTML says enough by its status */
        return fail_with(a->what, a->http, parsed ? j : NULL, out, err);
    if (!is_json(a->type))
        return not_ours(a, "is not JSON", err);
    if (!parsed)
        return not_ours(a, "cannot be read", err);
    if (!json_member_str(j, "kind").len)
        return not_ours(a, "is not an object of Kubernetes", err);
    *ret = take(&j);
    return 0;
}
