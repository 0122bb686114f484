/* SPDX-License-Identifier: Apache-2.0 */
/* The broker in the cluster's controller gives our credentials: we are a Job or a node, with a token that says so. */
#include "creds_private.h"
#include "exchange.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/json.h"
#include <fcntl.h>
#include <stdio.h>

#define TOKEN_FILE "/var/run/secrets/cistern.io/broker/token"
#define CA_FILE "/var/run/secrets/cistern.io/ca/ca.crt"

enum { FILE_MAX = 64 << 10, URL_MAX = 1024 };

struct broker_source {
    const char *scheme; /* static: what the store speaks */
    char *url;          /* owned: of the call */
    char *connect_to;   /* owned: "10.96.3.4:443"; NULL: found by name */
    char *volume;       /* owned: the CisternVolume's name */
    char *purpose;      /* owned: "hydrate" or "export" */
    char *token_file;   /* owned */
    char *ca_file;      /* owned */
    struct creds *creds;
};

static const char *env(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

bool creds_has_broker(void)
{
    return env("CISTERN_BROKER_URL") != NULL;
}

static void free_source(void *self)
{
    struct broker_source *s = self;
    free(s->url);
    free(s->connect_to);
    free(s->volume);
    free(s->purpose);
    free(s->token_file);
    free(s->ca_file);
    free(s);
}

static void refuse(struct broker_source *s, const struct err *why)
{
    struct err err = *why;
    err_wrap(&err, "cannot get credentials from the broker");
    if (err.id == 0 || err.id == 1611 || err.id == 1612 || err.id == 1613)
        err_advise(&err, 1909, "see that the controller runs, and its Service cistern-broker leads to it");
    creds_fetched(s->creds, NULL, &err);
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static enum err_code code_of(struct str name, int status)
{
    for (int c = ERR_NOT_FOUND; c <= ERR_INTERNAL; c++)
        if (str_eq(name, str_of(err_code_name((enum err_code)c))))
            return (enum err_code)c;
    return status >= 500 || status == 429 ? ERR_AGAIN : ERR_DENIED;
}

/* {"error": {"id": "CIS1904", "code": "DENIED", "message": "...", "advice": "..."}}: told on in its own words. */
static void refuse_answer(struct broker_source *s, int status, const json *j)
{
    struct err err, ignored;
    struct str id = STR_NULL, code = STR_NULL, message = STR_NULL, advice = STR_NULL;
    uint64_t number = 0;
    if (!j || json_opt_str(j, "error.message", &message, &ignored) < 0 || message.len == 0) {
        err_set(&err, code_of(STR_NULL, status), "it answered %d", status);
        refuse(s, &err);
        return;
    }
    if (json_opt_str(j, "error.id", &id, &ignored) < 0 || json_opt_str(j, "error.code", &code, &ignored) < 0 ||
        json_opt_str(j, "error.advice", &advice, &ignored) < 0)
        advice = STR_NULL;
    err_set(&err, code_of(code, status), "%.*s", STR_FMT(message));
    if (str_starts(id, STR("CIS")) && str_to_u64(str_sub(id, 3, id.len - 3), &number, &ignored) == 0 && number < 10000)
        err_advise(&err, (unsigned)number, "%.*s", STR_FMT(advice));
    refuse(s, &err);
}

static int read_key(const json *j, struct identity *i, struct err *err)
{
    struct str id, secret, session = STR_NULL;
    int r = json_get_str(j, "accessKeyID", &id, err);
    if (r == 0)
        r = json_get_str(j, "secretAccessKey", &secret, err);
    if (r == 0)
        r = json_opt_str(j, "sessionToken", &session, err);
    if (r < 0)
        return r;
    i->access_key_id = str_dup(id);
    i->secret = str_dup(secret);
    i->session_token = session.len ? str_dup(session) : NULL;
    return 0;
}

static int read_token(const json *j, struct identity *i, struct err *err)
{
    struct str token;
    int r = json_get_str(j, "accessToken", &token, err);
    if (r < 0)
        return r;
    struct sbuf b;
    sbuf_init(&b, FILE_MAX);
    sbuf_adds(&b, "Bearer ");
    sbuf_add(&b, token);
    return sbuf_take(&b, &i->bearer, err);
}

static int read_identity(const struct broker_source *s, const json *j, struct identity *i, struct err *err)
{
    struct str scheme, until;
    int r = json_get_str(j, "scheme", &scheme, err);
    if (r == 0)
        r = json_get_str(j, "expiresAt", &until, err);
    if (r == 0)
        r = time_parse(until, &i->expires_ns, err);
    if (r < 0)
        return r;
    if (str_eq(scheme, STR("anonymous"))) {
        i->anonymous = true;
        return 0;
    }
    if (!str_eq(scheme, str_of(s->scheme)))
        return err_set(err, ERR_CORRUPT, "its credential is for %.*s://, and %s:// was wanted",
                       STR_FMT(str_sub(scheme, 0, 16)), s->scheme);
    return str_eq(scheme, STR("s3")) ? read_key(j, i, err) : read_token(j, i, err);
}

static void answered(void *ctx, int status, struct str body, const struct err *err)
{
    struct broker_source *s = ctx;
    struct err why;
    auto_json j = NULL;
    if (err) {
        refuse(s, err);
        return;
    }
    int r = json_parse(body, "its answer", &j, &why);
    if (status != 200) {
        refuse_answer(s, status, r == 0 ? j : NULL);
        return;
    }
    auto_identity i = identity_new();
    if (r == 0)
        r = read_identity(s, j, i, &why);
    if (r < 0)
        refuse(s, &why);
    else
        creds_fetched(s->creds, take(&i), NULL);
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static char *call_body(const struct broker_source *s)
{
    char refused[IDENTITY_PRINT_MAX];
    auto_json j = json_new_object();
    json_set_str(j, "volume", str_of(s->volume));
    json_set_str(j, "for", str_of(s->purpose));
    json_set_str(j, "scheme", str_of(s->scheme));
    if (creds_refused_print(s->creds, refused))
        json_set_str(j, "refused", str_of(refused));
    return json_text(j, 0);
}

/* Both files are written anew while we run, the token by the kubelet, the authorities when the broker's change: they
 * are read for each call. */
static void fetch(struct creds *c, struct worker *w)
{
    struct broker_source *s = creds_self(c);
    struct err err;
    auto_mem char *token = NULL, *ca = NULL;
    size_t token_len, ca_len;
    s->creds = c;
    int r = file_read(AT_FDCWD, s->token_file, FILE_MAX, &token, &token_len, &err);
    if (r == 0)
        r = file_read(AT_FDCWD, s->ca_file, FILE_MAX, &ca, &ca_len, &err);
    if (r < 0) {
        refuse(s, &err);
        return;
    }
    auto_sbuf authorization;
    sbuf_init(&authorization, FILE_MAX + 16);
    sbuf_addf(&authorization, "Bearer %.*s", STR_FMT(str_trim((struct str){token, token_len})));
    auto_mem char *body = call_body(s);
    const struct web_header headers[] = {{"authorization", sbuf_str(&authorization)},
                                         {"content-type", STR("application/json")}};
    exchange_start(w, &(struct exchange_request){.method = "POST",
                                                 .url = s->url,
                                                 .headers = headers,
                                                 .header_count = countof(headers),
                                                 .body = str_of(body),
                                                 .ca = {ca, ca_len},
                                                 .connect_to = s->connect_to,
                                                 .retry_after_ns = &c->retry_after_ns,
                                                 .ctx = s,
                                                 .done = answered});
    explicit_bzero(token, token_len);
    explicit_bzero(authorization.ptr, authorization.len);
}

/* The service variables that the kubelet sets: the name needs no cluster DNS then. */
static char *connect_to(void)
{
    const char *host = env("CISTERN_BROKER_SERVICE_HOST"), *port = env("CISTERN_BROKER_SERVICE_PORT");
    char text[300];
    if (!host || !port)
        return NULL;
    bool is_v6 = strchr(host, ':') && host[0] != '[';
    snprintf(text, sizeof text, "%s%s%s:%s", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
    return str_dup(str_of(text));
}

static char *or_default(const char *variable, const char *otherwise)
{
    const char *value = env(variable);
    return str_dup(str_of(value ? value : otherwise));
}

int creds_open_broker(const char *scheme, struct creds **ret, struct err *err)
{
    const char *base = env("CISTERN_BROKER_URL"), *volume = env("CISTERN_BROKER_VOLUME");
    const char *purpose = env("CISTERN_BROKER_FOR");
    char url[URL_MAX];
    if (strncmp(base, "https://", 8) != 0 || strlen(base) > URL_MAX / 2) {
        err_set(err, ERR_INVALID, "CISTERN_BROKER_URL '%.200s' is no https:// address", base);
        return err_advise(err, 1909, "it is https://cistern-broker.<namespace>.svc");
    }
    if (!volume || !purpose || (strcmp(purpose, "hydrate") != 0 && strcmp(purpose, "export") != 0)) {
        err_set(err, ERR_INVALID, "CISTERN_BROKER_URL is set without a volume to ask for");
        return err_advise(err, 1909, "set CISTERN_BROKER_VOLUME, and CISTERN_BROKER_FOR to hydrate or export");
    }
    struct str at = str_of(base);
    while (str_ends(at, STR("/")))
        at.len--;
    snprintf(url, sizeof url, "%.*s/v1/credentials", STR_FMT(at));
    struct broker_source *s = xcalloc(1, sizeof *s);
    s->scheme = scheme;
    s->url = str_dup(str_of(url));
    s->connect_to = connect_to();
    s->volume = str_dup(str_of(volume));
    s->purpose = str_dup(str_of(purpose));
    s->token_file = or_default("CISTERN_BROKER_TOKEN_FILE", TOKEN_FILE);
    s->ca_file = or_default("CISTERN_BROKER_CA_FILE", CA_FILE);
    *ret = creds_new(
        &(struct creds_source){
            .name = "the broker", .method = "broker", .self = s, .free_self = free_source, .fetch = fetch},
        NULL);
    return 0;
}
