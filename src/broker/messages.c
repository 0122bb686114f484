/* SPDX-License-Identifier: Apache-2.0 */
#include "messages.h"
#include "util/clock.h"
#include "util/json.h"
#include <stdio.h>

enum { TOKEN_MAX = 16 << 10 };

static bool is_name(struct str s)
{
    return s.len > 0 && s.len < REQUEST_VOLUME_MAX && str_is_of(s, CHARS_LOWER CHARS_DIGITS "-.");
}

static bool is_fingerprint(struct str s)
{
    return s.len < CREDS_FINGERPRINT_SIZE && str_is_of(s, CHARS_DIGITS "abcdefABCDEF");
}

static int check_members(const json *j, struct err *err)
{
    for (void *i = json_iter(j); i; i = json_iter_next(j, i))
        if (!str_is_any(json_iter_key(i), "volume", "for", "scheme", "refused"))
            return err_set(err, ERR_INVALID, "the request has an unknown field '%.*s'",
                           STR_FMT(str_sub(json_iter_key(i), 0, 64)));
    return 0;
}

int credential_request_parse(struct str body, struct credential_request *ret, struct err *err)
{
    struct str volume, purpose, scheme = STR_NULL, refused = STR_NULL;
    auto_json j = NULL;
    int r = json_parse(body, "the request", &j, err);
    if (r == 0)
        r = check_members(j, err);
    if (r == 0)
        r = json_strings(j, err, {"volume", &volume}, {"for", &purpose}, {"?scheme", &scheme}, {"?refused", &refused});
    if (r < 0) {
        err->code = ERR_INVALID; /* for a missing field, too */
        return -ERR_INVALID;
    }
    if (!is_name(volume) || !is_fingerprint(refused))
        return err_set(err, ERR_INVALID, "invalid volume name or fingerprint");
    bool is_export = str_eq(purpose, STR("export"));
    if (!is_export && !str_eq(purpose, STR("hydrate")))
        return err_set(err, ERR_INVALID, "field 'for' is '%.*s': must be hydrate or export",
                       STR_FMT(str_sub(purpose, 0, 32)));
    enum creds_kind creds = creds_kind_of(scheme);
    if (scheme.len && !creds)
        return err_set(err, ERR_INVALID, "field 'scheme' is '%.*s': no credentials are known for it",
                       STR_FMT(str_sub(scheme, 0, 32)));
    *ret = (struct credential_request){.is_export = is_export};
    snprintf(ret->volume, sizeof ret->volume, "%.*s", STR_FMT(volume));
    ret->creds = creds;
    snprintf(ret->refused, sizeof ret->refused, "%.*s", STR_FMT(refused));
    return 0;
}

int bearer_token_of(struct str authorization, struct str *ret, struct err *err)
{
    static const char word[] = "Bearer ";
    size_t len = sizeof word - 1;
    struct str token = STR_NULL;
    if (authorization.len > len && str_eq_nocase(str_sub(authorization, 0, len), (struct str){word, len}))
        token = str_trim(str_sub(authorization, len, authorization.len - len));
    if (token.len == 0 || token.len > TOKEN_MAX)
        return err_fail(err, ERR_DENIED, CIS_BROKER_CALLER_UNKNOWN, "the request has no bearer token");
    *ret = token;
    return 0;
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

/* A JSON tree would leave a copy of the secret in freed memory. No credential of a cloud needs escaping. */
static int add_secret(struct sbuf *b, const char *name, const char *value, struct err *err)
{
    for (const char *c = value; *c; c++)
        if (*c < ' ' || *c == 127 || *c == '"' || *c == '\\')
            return err_set(err, ERR_CORRUPT, "the %s has invalid characters", name);
    sbuf_addf(b, ",\"%s\":\"%s\"", name, value);
    return 0;
}

static int add_identity(const struct creds_identity *i, struct sbuf *b, struct err *err)
{
    if (i->bearer)
        return add_secret(b, "accessToken", i->bearer + strlen("Bearer "), err);
    int r = add_secret(b, "accessKeyID", i->access_key_id ? i->access_key_id : "", err);
    if (r == 0)
        r = add_secret(b, "secretAccessKey", i->secret ? i->secret : "", err);
    if (r == 0 && i->session_token)
        r = add_secret(b, "sessionToken", i->session_token, err);
    return r;
}

int reply_with_credential(const struct credential_reply *g, struct sbuf *ret, struct err *err)
{
    char until[TIME_TEXT_MAX];
    sbuf_addf(ret, "{\"scheme\":\"%s\",\"expiresAt\":\"%s\"", g->scheme, time_text(g->identity->expires_ns, until));
    int r = g->identity->anonymous ? 0 : add_identity(g->identity, ret, err);
    if (r == 0)
        r = add_secret(ret, "method", g->method, err);
    if (r == 0)
        r = add_secret(ret, "principal", g->principal, err);
    sbuf_addc(ret, '}');
    return r;
}

static unsigned status_of(const struct err *err)
{
    enum err_kind kind = err_kind_of(err->id);
    if (kind == ERR_KIND_CALLER_UNKNOWN || kind == ERR_KIND_THROTTLED)
        return kind == ERR_KIND_THROTTLED ? 429 : 401;
    switch (err->code) {
    case ERR_INVALID:
        return 400;
    case ERR_NOT_FOUND:
        return 404;
    case ERR_AGAIN:
    case ERR_TIMEOUT:
    case ERR_IO:
    case ERR_CANCELLED:
        return 503;
    case ERR_INTERNAL:
    case ERR_CORRUPT:
        return 502;
    default:
        return 403;
    }
}

unsigned reply_with_error(const struct err *err, struct sbuf *ret)
{
    char id[ERR_ID_TEXT_MAX];
    auto_json j = json_new_object();
    json_set_strings(j, {"?error.id", str_of(err_id_text(err->id, id))},
                     {"error.code", str_of(err_code_name(err->code))}, {"error.message", str_of(err->text)},
                     {"?error.advice", str_of(err->advice)});
    auto_mem char *text = json_text(j, 0);
    sbuf_adds(ret, text);
    return status_of(err);
}
