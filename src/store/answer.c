/* SPDX-License-Identifier: Apache-2.0 */
#include "answer.h"
#include "util/clock.h"
#include "util/json.h"
#include "xml.h"

enum { BEARER_MAX = 256 << 10, LIFE_SECONDS = 3600 };

/* Of those that name no end, and of those that name one past all ends. */
#define LIFE_MAX_SECONDS (365 * UINT64_C(86400))

static enum err_code code_of(int status)
{
    return status >= 500 || status == 429 ? ERR_AGAIN : ERR_DENIED;
}

int answer_status(int status, struct err *err)
{
    return err_set(err, code_of(status), "it answered %d", status);
}

/* What a document gets wrong is its server's doing: to a caller it is neither a flag that is wrong nor a source that is
 * not there. */
static int garbled(struct err *err)
{
    err->code = ERR_CORRUPT;
    return -ERR_CORRUPT;
}

bool answer_is_token(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] <= ' ' || (unsigned char)s.ptr[i] >= 0x7F)
            return false;
    return s.len > 0;
}

struct identity *identity_bearer(struct str token, uint64_t seconds)
{
    struct identity *i = identity_new();
    auto_sbuf b;
    struct err ignored;
    sbuf_init(&b, BEARER_MAX + 16);
    sbuf_adds(&b, "Bearer ");
    sbuf_add(&b, token);
    if (sbuf_take(&b, &i->bearer, &ignored) < 0)
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

static void read_words(const json *j, const char *code_at, const char *words_at, struct str *ret_code,
                       struct str *ret_words)
{
    struct err ignored;
    if (json_opt_str(j, code_at, ret_code, &ignored) < 0)
        *ret_code = STR_NULL;
    if (json_opt_str(j, words_at, ret_words, &ignored) < 0)
        *ret_words = STR_NULL;
}

/* {"error": "invalid_grant", "error_description": "..."} */
static int token_refused(int status, struct str body, struct err *err)
{
    struct err ignored;
    auto_json j = NULL;
    struct str code = STR_NULL, words = STR_NULL;
    if (json_parse(body, "the answer", &j, &ignored) == 0)
        read_words(j, "error", "error_description", &code, &words);
    int r = refused(status, code, words, err);
    if (words.len && (memmem(words.ptr, words.len, "iat", 3) || memmem(words.ptr, words.len, "exp", 3)))
        return err_advise(err, 1901, "check this machine's clock: the assertion's times were not accepted");
    return r;
}

int answer_token(int status, struct str body, struct identity **ret, struct err *err)
{
    struct str token, type = STR("Bearer");
    uint64_t seconds = 0;
    auto_json j = NULL;
    if (status != 200)
        return token_refused(status, body, err);
    int r = json_parse(body, "the token", &j, err);
    if (r == 0)
        r = json_get_str(j, "access_token", &token, err);
    if (r == 0)
        r = json_opt_u64(j, "expires_in", &seconds, err);
    if (r == 0)
        r = json_opt_str(j, "token_type", &type, err);
    if (r == 0 && (!answer_is_token(token) || !str_eq_nocase(type, STR("Bearer"))))
        r = err_set(err, ERR_CORRUPT, "its answer holds no bearer token");
    if (r < 0)
        return garbled(err);
    *ret = identity_bearer(token, seconds ? seconds : LIFE_SECONDS);
    return 0;
}

/* {"error": {"code": 403, "message": "...", "status": "PERMISSION_DENIED"}} */
static int impersonation_refused(int status, struct str body, struct err *err)
{
    struct err ignored;
    auto_json j = NULL;
    struct str code = STR_NULL, words = STR_NULL;
    if (json_parse(body, "the answer", &j, &ignored) == 0)
        read_words(j, "error.status", "error.message", &code, &words);
    refused(status, code, words, err);
    int r = err_wrap(err, "impersonating the service account");
    if (r != -ERR_DENIED)
        return r;
    return err_advise(err, 1702,
                      "grant roles/iam.workloadIdentityUser on the Google service account to the Kubernetes one");
}

int answer_impersonated(int status, struct str body, struct identity **ret, struct err *err)
{
    struct str token, until;
    int64_t expires_ns;
    auto_json j = NULL;
    if (status != 200)
        return impersonation_refused(status, body, err);
    int r = json_parse(body, "the token", &j, err);
    if (r == 0)
        r = json_get_str(j, "accessToken", &token, err);
    if (r == 0)
        r = json_get_str(j, "expireTime", &until, err);
    if (r == 0)
        r = time_parse(until, &expires_ns, err);
    if (r == 0 && !answer_is_token(token))
        r = err_set(err, ERR_CORRUPT, "its answer holds no token");
    if (r < 0)
        return garbled(err);
    *ret = identity_bearer(token, 0);
    (*ret)->expires_ns = expires_ns;
    return 0;
}

/* ---- AWS --------------------------------------------------------------------------------------------------------- */

static int keys(struct str id, struct str secret, struct str token, struct str expiration, struct identity **ret,
                struct err *err)
{
    int64_t expires_ns = 0;
    if (!answer_is_token(id) || secret.len == 0 || (token.len && !answer_is_token(token)))
        return err_set(err, ERR_CORRUPT, "its answer holds no key");
    int r = expiration.len ? time_parse(expiration, &expires_ns, err) : 0;
    if (r < 0 && r != -ERR_RANGE) /* the year 9999, or 1, is how some say that they do not expire */
        return garbled(err);
    struct identity *i = identity_new();
    i->access_key_id = str_dup(id);
    i->secret = str_dup(secret);
    i->session_token = token.len ? str_dup(token) : NULL;
    i->expires_ns = expires_ns;
    *ret = i;
    return 0;
}

int answer_keys(int status, struct str body, struct identity **ret, struct err *err)
{
    struct str id = STR_NULL, secret = STR_NULL, token = STR_NULL, expiration = STR_NULL;
    auto_json j = NULL;
    if (status != 200)
        return answer_status(status, err);
    int r = json_parse(body, "the credentials", &j, err);
    if (r == 0)
        r = json_opt_str(j, "AccessKeyId", &id, err);
    if (r == 0)
        r = json_opt_str(j, "SecretAccessKey", &secret, err);
    if (r == 0)
        r = json_opt_str(j, "Token", &token, err);
    if (r == 0)
        r = json_opt_str(j, "Expiration", &expiration, err);
    return r < 0 ? garbled(err) : keys(id, secret, token, expiration, ret, err);
}

int answer_role(int status, struct str body, struct identity **ret, struct err *err)
{
    struct page page;
    page_init(&page);
    auto_xml x = xml_new(&page);
    int r = xml_read(x, body, err);
    const struct xml_answer *a = xml_answer(x);
    if (status != 200) /* what is no XML then is a proxy's: its status says enough */
        r = refused(status, r == 0 ? a->code : STR_NULL, r == 0 ? a->message : STR_NULL, err);
    else if (r == 0)
        r = keys(a->access_key_id, a->secret, a->session_token, a->expiration, ret, err);
    page_done(&page);
    return r;
}

/* ---- the broker -------------------------------------------------------------------------------------------------- */

static enum err_code code_named(struct str name, int status)
{
    for (int c = ERR_NOT_FOUND; c <= ERR_INTERNAL; c++)
        if (str_eq(name, str_of(err_code_name((enum err_code)c))))
            return (enum err_code)c;
    return code_of(status);
}

/* {"error": {"id": "CIS1904", "code": "DENIED", "message": "...", "advice": "..."}}: told on in its own words. */
static int broker_refused(int status, const json *j, struct err *err)
{
    struct err ignored;
    struct str id = STR_NULL, code = STR_NULL, message = STR_NULL, advice = STR_NULL;
    uint64_t number = 0;
    if (!j || json_opt_str(j, "error.message", &message, &ignored) < 0 || message.len == 0)
        return answer_status(status, err);
    if (json_opt_str(j, "error.id", &id, &ignored) < 0 || json_opt_str(j, "error.code", &code, &ignored) < 0 ||
        json_opt_str(j, "error.advice", &advice, &ignored) < 0)
        advice = STR_NULL;
    int r = err_set(err, code_named(code, status), "%.*s", STR_FMT(message));
    if (str_starts(id, STR("CIS")) && str_to_u64(str_from(id, 3), &number, &ignored) == 0 && number < 10000)
        return err_advise(err, (unsigned)number, "%.*s", STR_FMT(advice));
    return r;
}

static int read_key(const json *j, struct identity **ret, struct err *err)
{
    struct str id, secret, session = STR_NULL;
    int r = json_get_str(j, "accessKeyID", &id, err);
    if (r == 0)
        r = json_get_str(j, "secretAccessKey", &secret, err);
    if (r == 0)
        r = json_opt_str(j, "sessionToken", &session, err);
    return r < 0 ? garbled(err) : keys(id, secret, session, STR_NULL, ret, err);
}

static int read_token(const json *j, struct identity **ret, struct err *err)
{
    struct str token;
    int r = json_get_str(j, "accessToken", &token, err);
    if (r == 0 && !answer_is_token(token))
        r = err_set(err, ERR_CORRUPT, "its answer holds no token");
    if (r < 0)
        return garbled(err);
    *ret = identity_bearer(token, 0);
    return 0;
}

static struct identity *anonymous(void)
{
    struct identity *i = identity_new();
    i->anonymous = true;
    return i;
}

int answer_broker(int status, struct str body, struct str scheme, struct identity **ret, struct err *err)
{
    struct str given, until;
    int64_t expires_ns;
    auto_json j = NULL;
    int r = json_parse(body, "its answer", &j, err);
    if (status != 200)
        return broker_refused(status, j, err);
    if (r == 0)
        r = json_get_str(j, "scheme", &given, err);
    if (r == 0)
        r = json_get_str(j, "expiresAt", &until, err);
    if (r == 0)
        r = time_parse(until, &expires_ns, err);
    if (r < 0)
        return garbled(err);
    if (str_eq(given, STR("anonymous")))
        *ret = anonymous();
    else if (!str_eq(given, scheme))
        r = err_set(err, ERR_CORRUPT, "its credential is for %.*s://, and %.*s:// was wanted",
                    STR_FMT(str_sub(given, 0, 16)), STR_FMT(scheme));
    else
        r = str_eq(given, STR("s3")) ? read_key(j, ret, err) : read_token(j, ret, err);
    if (r == 0)
        (*ret)->expires_ns = expires_ns;
    return r;
}
