/* SPDX-License-Identifier: Apache-2.0 */
/* Google: a token file, the file that GOOGLE_APPLICATION_CREDENTIALS names, gcloud's well-known file, the metadata
 * server, in this order. A file is a service account's key, a person's refresh token, or a federation by STS. */
#include "creds/creds.h"
#include "creds/endpoint.h"
#include "exchange.h"
#include "private.h"
#include "reply.h"
#include "util/clock.h"
#include "util/encode.h"
#include "util/env.h"
#include "util/file.h"
#include "util/hash.h"
#include "util/json.h"
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#define SCOPE "https://www.googleapis.com/auth/devstorage.read_write"
#define FULL_SCOPE "https://www.googleapis.com/auth/devstorage.full_control"
#define TOKEN_URI "https://oauth2.googleapis.com/token"
#define STS_URI "https://sts.googleapis.com/v1/token"

#define METADATA_HOST "metadata.google.internal"
#define ELSEWHERE_NS (2 * NS_PER_SECOND) /* for the metadata server, on a machine outside Google's cloud */

enum { FILE_MAX = 1 << 20, FORM_MAX = 64 << 10, ASSERTION_SECONDS = 3600 };

struct gcp_source {
    char *file;            /* owned: file of the token, or of a federation's subject token */
    char *subject;         /* owned: instead of its file; of a grant's key, the assertion. Secret */
    json *key;             /* owned: the credentials file */
    char *url;             /* owned: of the exchange */
    char *impersonate_url; /* owned: URL that exchanges the token for one of a service account */
    bool is_expected;      /* the environment names the metadata server */
    struct creds *creds;   /* whose source this is */
    struct worker *worker; /* of the fetch under way */
};

static void free_source(void *self)
{
    struct gcp_source *s = self;
    json_free(s->key);
    secret_free(s->subject);
    free(s->file);
    free(s->url);
    free(s->impersonate_url);
    free(s);
}

/* ---- impersonation of a service account -------------------------------------------------------------------------- */

static void impersonated(void *ctx, int status, struct str body, const struct err *err)
{
    creds_replied(((struct gcp_source *)ctx)->creds, reply_impersonated, status, body, err);
}

static void impersonate(struct gcp_source *s, const struct creds_identity *federated)
{
    const struct web_header headers[] = {{"content-type", STR("application/json")},
                                         {"accept", STR("application/json")},
                                         {"authorization", str_of(federated->bearer)}};
    exchange_start(s->worker,
                   &(struct exchange_request){.method = "POST",
                                              .url = s->impersonate_url,
                                              .headers = headers,
                                              .header_count = countof(headers),
                                              .body = STR("{\"scope\":[\"" FULL_SCOPE "\"],\"lifetime\":\"3600s\"}"),
                                              .retry_after_ns = &s->creds->retry_after_ns,
                                              .ctx = s,
                                              .done = impersonated});
}

static void token_came(void *ctx, int status, struct str body, const struct err *err)
{
    struct gcp_source *s = ctx;
    auto_creds_identity i = NULL;
    struct err why;
    if (err)
        creds_refused(s->creds, err);
    else if (reply_token(status, body, &i, &why) < 0)
        creds_refused(s->creds, &why);
    else if (s->impersonate_url)
        impersonate(s, i);
    else
        creds_fetched(s->creds, take(&i), NULL);
}

static void post(struct gcp_source *s, struct worker *w, const char *type, struct str body)
{
    const struct web_header headers[] = {{"content-type", str_of(type)}, {"accept", STR("application/json")}};
    exchange_start(w, &(struct exchange_request){.method = "POST",
                                                 .url = s->url,
                                                 .headers = headers,
                                                 .header_count = countof(headers),
                                                 .body = body,
                                                 .retry_after_ns = &s->creds->retry_after_ns,
                                                 .ctx = s,
                                                 .done = token_came});
}

static void post_form(struct gcp_source *s, struct worker *w, struct str form)
{
    post(s, w, "application/x-www-form-urlencoded", form);
}

/* ---- a service account's key: RFC 7523 --------------------------------------------------------------------------- */

static int make_assertion(const struct gcp_source *s, struct sbuf *ret, struct err *err)
{
    struct str email, pem, id = STR_NULL;
    int r = json_strings(s->key, err, {"client_email", &email}, {"private_key", &pem}, {"?private_key_id", &id});
    if (r < 0)
        return r;
    int64_t now = clock_wall_ns() / (int64_t)NS_PER_SECOND;
    auto_json header = json_new_object();
    auto_json claims = json_new_object();
    json_set_strings(header, {"alg", STR("RS256")}, {"typ", STR("JWT")}, {"?kid", id});
    json_set_strings(claims, {"iss", email}, {"scope", STR(SCOPE)}, {"aud", str_of(s->url)});
    json_set_i64(claims, "iat", now);
    json_set_i64(claims, "exp", now + ASSERTION_SECONDS);
    auto_mem char *h = json_text(header, 0);
    auto_mem char *c = json_text(claims, 0);
    auto_sbuf signature = SBUF(4096);
    base64url_add(ret, h, strlen(h));
    sbuf_addc(ret, '.');
    base64url_add(ret, c, strlen(c));
    r = rs256_sign(pem, sbuf_str(ret), &signature, err);
    if (r < 0)
        return r;
    sbuf_addc(ret, '.');
    base64url_add(ret, signature.ptr, signature.len);
    return 0;
}

static void post_assertion(struct gcp_source *s, struct worker *w, struct str assertion)
{
    auto_sbuf form = SBUF(FORM_MAX);
    percent_encode_param("grant_type", STR("urn:ietf:params:oauth:grant-type:jwt-bearer"), &form);
    percent_encode_param("assertion", assertion, &form);
    post_form(s, w, sbuf_str(&form));
}

static void fetch_service_account(struct creds *c, struct worker *w)
{
    struct gcp_source *s = c->source.self;
    struct err err;
    auto_sbuf assertion = SBUF(FORM_MAX / 2);
    if (make_assertion(s, &assertion, &err) < 0)
        creds_refused(s->creds, &err);
    else
        post_assertion(s, w, sbuf_str(&assertion));
}

static void fetch_assertion(struct creds *c, struct worker *w)
{
    struct gcp_source *s = c->source.self;
    post_assertion(s, w, str_of(s->subject));
}

/* ---- a person's refresh token ------------------------------------------------------------------------------------ */

static void fetch_authorized_user(struct creds *c, struct worker *w)
{
    static const char *const names[] = {"client_id", "client_secret", "refresh_token"};
    struct gcp_source *s = c->source.self;
    struct err err;
    auto_sbuf form = SBUF(FORM_MAX);
    percent_encode_param("grant_type", STR("refresh_token"), &form);
    for (size_t i = 0; i < countof(names); i++) {
        struct str value;
        if (json_get_str(s->key, names[i], &value, &err) < 0) {
            creds_refused(s->creds, &err);
            return;
        }
        percent_encode_param(names[i], value, &form);
    }
    post_form(s, w, sbuf_str(&form));
}

/* ---- a token of another issuer, exchanged by Google's STS: RFC 8693 ---------------------------------------------- */

static void fetch_federation(struct creds *c, struct worker *w)
{
    struct gcp_source *s = c->source.self;
    struct err err;
    struct str audience, type;
    auto_mem char *token = NULL;
    size_t len = 0;
    s->worker = w;
    int r = json_strings(s->key, &err, {"audience", &audience}, {"subject_token_type", &type});
    if (r == 0 && !s->subject)
        r = file_read(AT_FDCWD, s->file, FILE_MAX, &token, &len, &err);
    if (r < 0) {
        creds_refused(s->creds, &err);
        return;
    }
    auto_json j = json_new_object();
    json_set_strings(j, {"grantType", STR("urn:ietf:params:oauth:grant-type:token-exchange")}, {"audience", audience},
                     {"scope", STR("https://www.googleapis.com/auth/cloud-platform")},
                     {"requestedTokenType", STR("urn:ietf:params:oauth:token-type:access_token")},
                     {"subjectTokenType", type},
                     {"subjectToken", s->subject ? str_of(s->subject) : str_trim((struct str){token, len})});
    auto_mem char *text = json_text(j, 0);
    post(s, w, "application/json", str_of(text));
    explicit_bzero(text, strlen(text));
}

/* ---- metadata server, token file --------------------------------------------------------------------------------- */

/* The product name of the firmware. Google's libraries also recognize a Google machine by it. */
static bool is_google_machine(void)
{
    auto_mem char *product = NULL;
    size_t len = 0;
    return file_read(AT_FDCWD, "/sys/class/dmi/id/product_name", 4096, &product, &len, ERR_IGNORED) == 0 &&
           str_starts((struct str){product, len}, STR("Google"));
}

/* Outside Google a metadata server is rare. Its absence is not temporary: there are no credentials. */
static void metadata_came(void *ctx, int status, struct str body, const struct err *err)
{
    struct gcp_source *s = ctx;
    struct err none;
    if (!err || s->is_expected || is_google_machine()) {
        token_came(ctx, status, body, err);
        return;
    }
    err_set(&none, ERR_DENIED, "this is not a Google Cloud machine, and %s", err->text);
    err_advise(&none, CIS_NO_CREDENTIALS);
    creds_refused(s->creds, &none);
}

static void fetch_metadata(struct creds *c, struct worker *w)
{
    struct gcp_source *s = c->source.self;
    const struct web_header headers[] = {{"metadata-flavor", STR("Google")}, {"host", STR(METADATA_HOST)}};
    exchange_start(w, &(struct exchange_request){.method = "GET",
                                                 .url = s->url,
                                                 .headers = headers,
                                                 .header_count = s->is_expected ? 1 : 2,
                                                 .timeout_ns = s->is_expected || is_google_machine() ? 0 : ELSEWHERE_NS,
                                                 .retry_after_ns = &c->retry_after_ns,
                                                 .ctx = s,
                                                 .done = metadata_came});
}

/* The file does not state its token's life: read it again every minute. */
static void fetch_file(struct creds *c, struct worker *)
{
    struct gcp_source *s = c->source.self;
    struct err err;
    auto_mem char *text = NULL;
    size_t len;
    if (file_read(AT_FDCWD, s->file, FILE_MAX, &text, &len, &err) < 0) {
        creds_refused(s->creds, &err);
        return;
    }
    struct str token = str_trim((struct str){text, len});
    if (!reply_is_token(token)) {
        err_set(&err, ERR_DENIED, "'%s' %s", s->file, token.len ? "has more than a token" : "is empty");
        creds_refused(s->creds, &err);
        return;
    }
    creds_fetched(c, creds_identity_bearer(token, 60), NULL);
}

/* ---- the chain --------------------------------------------------------------------------------------------------- */

static struct creds *make(const char *name, const char *method, struct gcp_source *own_s,
                          void (*fetch)(struct creds *c, struct worker *w))
{
    const struct creds_source source = {
        .name = name, .method = method, .self = own_s, .free_self = free_source, .fetch = fetch};
    return own_s->creds = creds_new(&source, NULL);
}

/* A missing field is a mistake in the file, not a missing file. */
static int get_field(const json *key, const char *name, struct str *ret, struct err *err)
{
    if (json_get_str(key, name, ret, err) == 0)
        return 0;
    err->code = ERR_INVALID;
    return -ERR_INVALID;
}

/* Before the first request. */
static int check_fields(const json *key, const char *const *names, struct err *err)
{
    struct str value;
    int r = 0;
    for (; *names && r == 0; names++)
        r = get_field(key, *names, &value, err);
    return r;
}

static int wrong_file(const char *path, struct gcp_source *own_s, struct err *err)
{
    free_source(own_s);
    err_wrap(err, "reading the credentials '%s'", path);
    return err_advise(err, CIS_NO_CREDENTIALS);
}

/* The key file names the server that receives assertions. A signature must not travel in clear text, except to
 * this machine. */
static int choose_url(const json *key, const char *field, const char *otherwise, char **ret, struct err *err)
{
    struct str uri = str_of(otherwise);
    struct endpoint e;
    int r = json_opt_str(key, field, &uri, err);
    if (r == 0)
        r = endpoint_parse(uri, &e, err);
    if (r == 0 && !e.tls && !str_eq(e.host, STR("127.0.0.1")) && !str_eq(e.host, STR("localhost")))
        r = err_set(err, ERR_INVALID, "its %s is not https", field);
    if (r == 0)
        *ret = str_dup(uri);
    return r;
}

static int open_federation(struct gcp_source *s, struct err *err)
{
    struct str file;
    int r = json_get_str(s->key, "credential_source.file", &file, err);
    if (r == 0)
        r = choose_url(s->key, "token_url", STS_URI, &s->url, err);
    if (r == 0 && json_at(s->key, "service_account_impersonation_url"))
        r = choose_url(s->key, "service_account_impersonation_url", "", &s->impersonate_url, err);
    if (r == 0)
        s->file = str_dup(file);
    return r;
}

static int open_token_uri(struct gcp_source *s, struct err *err)
{
    return choose_url(s->key, "token_uri", TOKEN_URI, &s->url, err);
}

static const struct key_file {
    const char *type, *method, *name;
    const char *fields[4]; /* that it must have; ends with NULL */
    int (*open)(struct gcp_source *s, struct err *err);
    void (*fetch)(struct creds *c, struct worker *w);
} key_files[] = {
    {"service_account",
     "service_account",
     "the service account's key",
     {"client_email", "private_key"},
     open_token_uri,
     fetch_service_account},
    {"authorized_user",
     "authorized_user",
     "the user's credentials",
     {"client_id", "client_secret", "refresh_token"},
     open_token_uri,
     fetch_authorized_user},
    {"external_account",
     "federation",
     "the federated identity",
     {"audience", "subject_token_type"},
     open_federation,
     fetch_federation},
};

static int open_file(const char *path, struct creds **ret, struct err *err)
{
    auto_mem char *text = NULL;
    size_t len;
    struct str type = STR_NULL;
    struct gcp_source *s = xcalloc(1, sizeof *s);
    int r = file_read(AT_FDCWD, path, FILE_MAX, &text, &len, err);
    if (r == 0)
        r = json_parse((struct str){text, len}, "the file", &s->key, err);
    if (r == 0)
        r = get_field(s->key, "type", &type, err);
    if (text)
        explicit_bzero(text, len);
    const struct key_file *kind = key_files, *end = key_files + countof(key_files);
    while (kind < end && !str_eq(type, str_of(kind->type)))
        kind++;
    if (r == 0 && kind == end)
        r = err_set(err, ERR_UNSUPPORTED, "its type '%.*s' is not supported", STR_FMT(str_sub(type, 0, 64)));
    if (r == 0)
        r = check_fields(s->key, kind->fields, err);
    if (r == 0)
        r = kind->open(s, err);
    if (r < 0)
        return wrong_file(path, s, err);
    *ret = make(kind->name, kind->method, s, kind->fetch);
    return 0;
}

static bool well_known_file(char *path, size_t size)
{
    const char *config = env_get("CLOUDSDK_CONFIG"), *home = env_get_directory("HOME");
    if (!config && !home)
        return false;
    snprintf(path, size, "%s%s/application_default_credentials.json", config ? config : home,
             config ? "" : "/.config/gcloud");
    /* An unreadable file is not skipped, but a directory that is another user's. */
    return access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR && errno != EACCES);
}

/* The name is resolved with a dot at its end, so that no search domain of the cluster completes it: a Service in a
 * namespace "internal" could pose as the metadata server, which nothing else authenticates. The Host header has the
 * name without the dot. */
static struct creds *open_metadata(void)
{
    const char *host = env_get("GCE_METADATA_HOST");
    struct gcp_source *s = xcalloc(1, sizeof *s);
    auto_sbuf b = SBUF(4096);
    s->is_expected = host != NULL;
    sbuf_addf(&b, "http://%s/computeMetadata/v1/instance/service-accounts/default/token",
              host ? host : METADATA_HOST ".");
    if (sbuf_take(&b, &s->url, ERR_IGNORED) < 0)
        s->url = str_dup(STR(""));
    return make("the machine's metadata server", "metadata", s, fetch_metadata);
}

int creds_open_gcp(const struct creds_options *, struct creds **ret, struct err *err)
{
    char path[PATH_MAX];
    const char *named = env_get("GOOGLE_APPLICATION_CREDENTIALS"),
               *token_file = env_get("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE");
    /* An emulator needs no credentials unless some are given, as in the vendor's libraries. */
    bool emulator = env_get("STORAGE_EMULATOR_HOST") && !named && !token_file;
    if (emulator) {
        *ret = creds_new_anonymous();
        return 0;
    }
    if (token_file) {
        struct gcp_source *s = xcalloc(1, sizeof *s);
        s->file = str_dup(str_of(token_file));
        *ret = make("the token file", "token_file", s, fetch_file);
        return 0;
    }
    auto_sbuf skipped = SBUF(2 * PATH_MAX);
    sbuf_adds(&skipped, "token file (CLOUDSDK_AUTH_ACCESS_TOKEN_FILE is not set)");
    int r = 0;
    if (!named)
        sbuf_adds(&skipped, ", key file (GOOGLE_APPLICATION_CREDENTIALS is not set)");
    if (named || well_known_file(path, sizeof path)) {
        r = open_file(named ? named : path, ret, err);
    } else {
        sbuf_adds(&skipped, ", gcloud's file (application_default_credentials.json is not in its directory)");
        *ret = open_metadata();
    }
    if (r == 0)
        creds_note_skipped(*ret, &skipped);
    return r;
}

/* ---- grants: a token or key of a user, in memory ----------------------------------------------------------------- */

/* The documented address, or that of the environment: the owner of the key must not choose where this process
 * sends it. */
static char *address(const char *variable, const char *otherwise, const char *path)
{
    const char *named = env_get(variable);
    auto_sbuf b = SBUF(4096);
    char *url;
    sbuf_adds(&b, named ? named : otherwise);
    while (b.len && b.ptr[b.len - 1] == '/')
        sbuf_cut(&b, b.len - 1);
    sbuf_adds(&b, path);
    return sbuf_take(&b, &url, ERR_IGNORED) == 0 ? url : str_dup(STR(""));
}

/* Signs here, on the caller's thread: the loop of the broker is also that of the API client. */
static int open_key(const struct grant *g, struct gcp_source *s, struct err *err)
{
    struct str type = STR_NULL;
    auto_sbuf assertion = SBUF(FORM_MAX / 2);
    int r = json_parse(g->key, "service_account.json", &s->key, err);
    if (r == 0)
        r = json_opt_str(s->key, "type", &type, err);
    /* Files of other types name addresses and files to read, which the user of the key must not choose. */
    if (r == 0 && !str_eq(type, STR("service_account")))
        r = err_set(err, ERR_INVALID, "its type is '%.*s', expected 'service_account'", STR_FMT(str_sub(type, 0, 64)));
    s->url = address("CISTERN_GCP_OAUTH_URL", "https://oauth2.googleapis.com", "/token");
    if (r == 0)
        r = make_assertion(s, &assertion, err);
    if (r == -ERR_NOT_FOUND) /* a field is missing: the file is invalid */
        err->code = ERR_INVALID;
    return r < 0 ? -(int)err->code : sbuf_take(&assertion, &s->subject, err);
}

static char *impersonation_address(struct str email)
{
    auto_sbuf path = SBUF(2048);
    sbuf_adds(&path, "/v1/projects/-/serviceAccounts/");
    percent_encode(email, &path);
    sbuf_adds(&path, ":generateAccessToken");
    return address("CISTERN_GCP_IAM_URL", "https://iamcredentials.googleapis.com", path.ptr);
}

int creds_open_gcp_grant(const struct grant *g, struct creds **ret, struct err *err)
{
    struct gcp_source *s = xcalloc(1, sizeof *s);
    int r = 0;
    if (g->kind == GRANT_GCP_KEY) {
        r = open_key(g, s, err);
    } else {
        s->key = json_new_object();
        json_set_str(s->key, "audience", g->audience);
        json_set_str(s->key, "subject_token_type", STR("urn:ietf:params:oauth:token-type:jwt"));
        s->subject = str_dup(g->token);
        s->url = address("CISTERN_GCP_STS_URL", "https://sts.googleapis.com", "/v1/token");
        s->impersonate_url = g->email.len ? impersonation_address(g->email) : NULL;
    }
    if (r < 0) {
        free_source(s);
        return r;
    }
    if (g->kind == GRANT_GCP_KEY)
        *ret = make("the secret's service account", NULL, s, fetch_assertion);
    else
        *ret = make("Google's token exchange", NULL, s, fetch_federation);
    return 0;
}
