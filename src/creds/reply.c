/* SPDX-License-Identifier: Apache-2.0 */
#include "reply.h"
#include "creds/xml.h"
#include "private.h"
#include "util/clock.h"
#include "util/json.h"

enum { BEARER_MAX = 256 << 10, LIFE_SECONDS = 3600 };

/* The longest life of a token: its end must fit into 64 bits. */
#define LIFE_MAX_SECONDS (365 * UINT64_C(86400))

static enum err_code code_of(int status)
{
    return status >= 500 || status == 429 ? ERR_AGAIN : ERR_DENIED;
}

int reply_status(int status, struct err *err)
{
    return err_set(err, code_of(status), "the server answered %d", status);
}

/* A malformed document is the server's fault: neither a flag nor a source is invalid. */
static int garbled(struct err *err)
{
    err->code = ERR_CORRUPT;
    return -ERR_CORRUPT;
}

bool reply_is_token(struct str s)
{
    return s.len > 0 && str_is_visible(s, "");
}

struct creds_identity *creds_identity_bearer(struct str token, uint64_t seconds)
{
    struct creds_identity *i = creds_identity_new();
    auto_sbuf b = SBUF(BEARER_MAX + 16);
    sbuf_adds(&b, "Bearer ");
    sbuf_add(&b, token);
    if (sbuf_take(&b, &i->bearer, ERR_IGNORED) < 0)
        i->bearer = str_dup(STR("Bearer"));
    i->expires_ns = seconds ? i->born_ns + (int64_t)min_u64(seconds, LIFE_MAX_SECONDS) * (int64_t)NS_PER_SECOND : 0;
    return i;
}

/* ---- Google ------------------------------------------------------------------------------------------------------ */

static int refused(int status, struct str code, struct str words, struct err *err)
{
    return err_set(err, code_of(status), "%d %.*s: %.*s", status, STR_FMT(str_sub(code, 0, 64)),
                   STR_FMT(str_sub(words, 0, 160)));
}

/* *ret_words is a view into *ret_json. */
static int google_refused(int status, struct str body, const char *code_at, const char *words_at, json **ret_json,
                          struct str *ret_words, struct err *err)
{
    if (json_parse(body, "the answer", ret_json, ERR_IGNORED) < 0)
        return refused(status, STR_NULL, STR_NULL, err);
    *ret_words = json_str_at(*ret_json, words_at);
    return refused(status, json_str_at(*ret_json, code_at), *ret_words, err);
}

/* {"error": "invalid_grant", "error_description": "..."} */
static int token_refused(int status, struct str body, struct err *err)
{
    auto_json j = NULL;
    struct str words = STR_NULL;
    int r = google_refused(status, body, "error", "error_description", &j, &words, err);
    if (str_has(words, STR("iat")) || str_has(words, STR("exp")))
        return err_advise(err, CIS_CLOCK_SKEW);
    return r;
}

int reply_token(int status, struct str body, struct creds_identity **ret, struct err *err)
{
    struct str token, type = STR("Bearer");
    uint64_t seconds = 0;
    auto_json j = NULL;
    if (status != 200)
        return token_refused(status, body, err);
    int r = json_parse(body, "the token", &j, err);
    if (r == 0)
        r = json_strings(j, err, {"access_token", &token}, {"?token_type", &type});
    if (r == 0)
        r = json_opt_u64(j, "expires_in", &seconds, err);
    if (r == 0 && (!reply_is_token(token) || !str_eq_nocase(type, STR("Bearer"))))
        r = err_set(err, ERR_CORRUPT, "its reply has no bearer token");
    if (r < 0)
        return garbled(err);
    *ret = creds_identity_bearer(token, seconds ? seconds : LIFE_SECONDS);
    return 0;
}

/* {"error": {"code": 403, "message": "...", "status": "PERMISSION_DENIED"}} */
static int impersonation_refused(int status, struct str body, struct err *err)
{
    auto_json j = NULL;
    struct str words = STR_NULL;
    (void)google_refused(status, body, "error.status", "error.message", &j, &words, err);
    int r = err_wrap(err, "impersonating the service account (roles/iam.workloadIdentityUser)");
    if (r != -ERR_DENIED)
        return r;
    return err_advise(err, CIS_TOKEN_EXCHANGE_FAILED);
}

int reply_impersonated(int status, struct str body, struct creds_identity **ret, struct err *err)
{
    struct str token, until;
    int64_t expires_ns;
    auto_json j = NULL;
    if (status != 200)
        return impersonation_refused(status, body, err);
    int r = json_parse(body, "the token", &j, err);
    if (r == 0)
        r = json_strings(j, err, {"accessToken", &token}, {"expireTime", &until});
    if (r == 0)
        r = time_parse(until, &expires_ns, err);
    if (r == 0 && !reply_is_token(token))
        r = err_set(err, ERR_CORRUPT, "its reply has no token");
    if (r < 0)
        return garbled(err);
    *ret = creds_identity_bearer(token, 0);
    (*ret)->expires_ns = expires_ns;
    return 0;
}

/* ---- AWS --------------------------------------------------------------------------------------------------------- */

static int keys(struct str id, struct str secret, struct str token, struct str expiration, struct creds_identity **ret,
                struct err *err)
{
    int64_t expires_ns = 0;
    if (!reply_is_token(id) || secret.len == 0 || (token.len && !reply_is_token(token)))
        return err_set(err, ERR_CORRUPT, "its reply has no key");
    int r = expiration.len ? time_parse(expiration, &expires_ns, err) : 0;
    if (r < 0 && r != -ERR_RANGE) /* some servers write the year 9999 or 1 for keys that do not expire */
        return garbled(err);
    struct creds_identity *i = creds_identity_new();
    i->access_key_id = str_dup(id);
    i->secret = str_dup(secret);
    i->session_token = token.len ? str_dup(token) : NULL;
    i->expires_ns = expires_ns;
    *ret = i;
    return 0;
}

int reply_keys(int status, struct str body, struct creds_identity **ret, struct err *err)
{
    struct str id = STR_NULL, secret = STR_NULL, token = STR_NULL, expiration = STR_NULL;
    auto_json j = NULL;
    if (status != 200)
        return reply_status(status, err);
    int r = json_parse(body, "the credentials", &j, err);
    if (r == 0)
        r = json_strings(j, err, {"?AccessKeyId", &id}, {"?SecretAccessKey", &secret}, {"?Token", &token},
                         {"?Expiration", &expiration});
    return r < 0 ? garbled(err) : keys(id, secret, token, expiration, ret, err);
}

enum { ROLE_CODE, ROLE_MESSAGE, ROLE_KEY_ID, ROLE_SECRET, ROLE_SESSION, ROLE_EXPIRATION, ROLE_FIELDS };

static const char *const role_fields[ROLE_FIELDS] = {
    [ROLE_CODE] = "Code",
    [ROLE_MESSAGE] = "Message",
    [ROLE_KEY_ID] = "AccessKeyId",
    [ROLE_SECRET] = "SecretAccessKey",
    [ROLE_SESSION] = "SessionToken",
    [ROLE_EXPIRATION] = "Expiration",
};

static bool role_element_starts(void *, unsigned, int name, const char *)
{
    return name >= 0;
}

static int role_element_ends(void *ctx, unsigned, int name, bool has_text, struct str text, struct err *)
{
    struct sbuf *fields = ctx;
    if (!has_text)
        return 0;
    sbuf_set(&fields[name], text);
    return 0;
}

int reply_role(int status, struct str body, struct creds_identity **ret, struct err *err)
{
    struct sbuf fields[ROLE_FIELDS];
    struct str text[ROLE_FIELDS];
    for (size_t i = 0; i < ROLE_FIELDS; i++)
        sbuf_init(&fields[i], XML_TEXT_MAX);
    auto_xml x = xml_new(&(struct xml_reader){.names = role_fields,
                                              .name_count = ROLE_FIELDS,
                                              .ctx = fields,
                                              .start = role_element_starts,
                                              .end = role_element_ends});
    int r = xml_read(x, body, err);
    for (size_t i = 0; i < ROLE_FIELDS; i++)
        text[i] = r == 0 ? sbuf_str(&fields[i]) : STR_NULL;
    if (status != 200) /* a reply that is not XML comes from a proxy: report its status only */
        r = refused(status, text[ROLE_CODE], text[ROLE_MESSAGE], err);
    else if (r == 0)
        r = keys(text[ROLE_KEY_ID], text[ROLE_SECRET], text[ROLE_SESSION], text[ROLE_EXPIRATION], ret, err);
    for (size_t i = 0; i < ROLE_FIELDS; i++) {
        if (fields[i].ptr)
            explicit_bzero(fields[i].ptr, fields[i].len);
        sbuf_done(&fields[i]);
    }
    return r;
}

/* ---- the broker -------------------------------------------------------------------------------------------------- */

static enum err_code code_named(struct str name, int status)
{
    enum err_code code = err_code_of_name(name);
    return code != ERR_INTERNAL || str_eq(name, STR("INTERNAL")) ? code : code_of(status);
}

/* {"error": {"id": "CIS_SERVICE_ACCOUNT_NOT_ANNOTATED", "code": "DENIED", "message": "...", "advice": "..."}}:
 * copied unchanged. */
static int broker_refused(int status, const json *j, struct err *err)
{
    struct str message = j ? json_str_at(j, "error.message") : STR_NULL;
    uint64_t number = 0;
    if (message.len == 0)
        return reply_status(status, err);
    struct str id = json_str_at(j, "error.id"), advice = json_str_at(j, "error.advice");
    int r = err_set(err, code_named(json_str_at(j, "error.code"), status), "%.*s", STR_FMT(message));
    if (str_starts(id, STR("CIS")) && str_to_u64(str_from(id, 3), &number, ERR_IGNORED) == 0 && number < 10000)
        return err_advise_text(err, (enum err_id)number, "%.*s", STR_FMT(advice));
    return r;
}

int reply_read_access_key(const json *j, struct creds_identity **ret, struct err *err)
{
    struct str id, secret, session = STR_NULL;
    int r = json_strings(j, err, {"accessKeyID", &id}, {"secretAccessKey", &secret}, {"?sessionToken", &session});
    return r < 0 ? garbled(err) : keys(id, secret, session, STR_NULL, ret, err);
}

int reply_read_token(const json *j, struct creds_identity **ret, struct err *err)
{
    struct str token;
    int r = json_get_str(j, "accessToken", &token, err);
    if (r == 0 && !reply_is_token(token))
        r = err_set(err, ERR_CORRUPT, "its reply has no token");
    if (r < 0)
        return garbled(err);
    *ret = creds_identity_bearer(token, 0);
    return 0;
}

static struct creds_identity *anonymous(void)
{
    struct creds_identity *i = creds_identity_new();
    i->anonymous = true;
    return i;
}

int reply_broker(int status, struct str body, enum creds_kind kind, struct creds_identity **ret, struct err *err)
{
    struct str given, until;
    int64_t expires_ns;
    auto_json j = NULL;
    int r = json_parse(body, "its answer", &j, err);
    if (status != 200)
        return broker_refused(status, j, err);
    if (r == 0)
        r = json_strings(j, err, {"scheme", &given}, {"expiresAt", &until});
    if (r == 0)
        r = time_parse(until, &expires_ns, err);
    if (r < 0)
        return garbled(err);
    if (str_eq(given, STR("anonymous")))
        *ret = anonymous();
    else if (!str_eq(given, str_of(creds_kind_name(kind))))
        r = err_set(err, ERR_CORRUPT, "its credential is for %.*s://, expected %s://", STR_FMT(str_sub(given, 0, 16)),
                    creds_kind_name(kind));
    else
        r = creds_kinds[kind].read(j, ret, err);
    if (r == 0)
        (*ret)->expires_ns = expires_ns;
    return r;
}
