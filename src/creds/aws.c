/* SPDX-License-Identifier: Apache-2.0 */
/* AWS: environment, web identity, profile, container, instance metadata, in the order of the vendor's SDKs. A
 * profile that an option names comes first. */
#include "creds/creds.h"
#include "creds/endpoint.h"
#include "creds/sigv4.h"
#include "creds/trust.h"
#include "exchange.h"
#include "ini.h"
#include "private.h"
#include "reply.h"
#include "util/clock.h"
#include "util/encode.h"
#include "util/env.h"
#include "util/file.h"
#include "util/hash.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

enum { FILE_MAX = 1 << 20, URL_MAX = 2048, TOKEN_MAX = 64 << 10 };

/* ---- profiles ---------------------------------------------------------------------------------------------------- */

static const struct aws_file {
    const char *variable, *name;
} files[] = {{"AWS_SHARED_CREDENTIALS_FILE", "credentials"}, {"AWS_CONFIG_FILE", "config"}};

static int read_aws_file(bool config, char path[PATH_MAX], char **ret, size_t *ret_len, struct err *err)
{
    const struct aws_file *f = &files[config];
    const char *named = env_get(f->variable), *home = env_get_directory("HOME");
    if (!named && !home)
        return err_set(err, ERR_NOT_FOUND, "%s is not set, and HOME is not an absolute path", f->variable);
    snprintf(path, PATH_MAX, "%s%s%s", named ? named : home, named ? "" : "/.aws/", named ? "" : f->name);
    return file_read(AT_FDCWD, path, FILE_MAX, ret, ret_len, err);
}

/* A pipe, as of a shell's <(...), gives its content to the first reader only. */
static bool is_pipe(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISFIFO(st.st_mode);
}

static bool is_elsewhere(const char *path)
{
    return access(path, F_OK) != 0 && (errno == ENOTDIR || errno == EACCES);
}

/* A damaged file must not be skipped: the next source would be another identity, or a server that does not answer. */
static int check_aws_file(bool config, struct err *err)
{
    char path[PATH_MAX];
    auto_mem char *text = NULL;
    size_t len, line;
    int r = read_aws_file(config, path, &text, &len, err);
    if (r == 0 && is_pipe(path))
        return err_fail(err, ERR_INVALID, CIS_CREDENTIALS_FILE_INVALID,
                        "%s: '%s' is a pipe, which can be read only once: name a regular file", files[config].variable,
                        path);
    if (r == 0 && !ini_is_valid((struct str){text, len}, &line))
        r = err_set(err, ERR_INVALID, "'%s': line %zu is neither [SECTION] nor NAME = VALUE", path, line);
    /* Without a variable, the file may be missing, or HOME another user's, as for AWS's own tools. */
    if (r == 0 || (!env_get(files[config].variable) && (r == -ERR_NOT_FOUND || is_elsewhere(path))))
        return 0;
    return err_advise(err, CIS_CREDENTIALS_FILE_INVALID);
}

/* Before a profile is looked for. A token file needs a role, unless a profile is named. */
static int check_files(bool named, const char *token_file, struct err *err)
{
    if (!named && token_file)
        return err_fail(err, ERR_INVALID, CIS_NO_CREDENTIALS,
                        "AWS_WEB_IDENTITY_TOKEN_FILE is set, and AWS_ROLE_ARN is not");
    int r = check_aws_file(false, err);
    return r == 0 ? check_aws_file(true, err) : r;
}

/* A profile is `[name]` in the credentials file, and `[profile name]` (but `[default]`) in the config file. */
static char *profile_value(const char *profile, const char *name, bool config)
{
    auto_mem char *text = NULL;
    size_t len;
    char section[256], path[PATH_MAX];
    struct str value;
    bool prefixed = config && strcmp(profile, "default") != 0;
    snprintf(section, sizeof section, "%s%s", prefixed ? "profile " : "", profile);
    if (read_aws_file(config, path, &text, &len, ERR_IGNORED) < 0)
        return NULL;
    return ini_value((struct str){text, len}, str_of(section), str_of(name), &value) ? str_dup(value) : NULL;
}

static const char *profile_name(const char *asked)
{
    const char *named = asked && asked[0] ? asked : env_get("AWS_PROFILE");
    return named ? named : "default";
}

char *creds_aws_profile_value(const char *profile, const char *name)
{
    char *value = profile_value(profile_name(profile), name, true);
    return value ? value : profile_value(profile_name(profile), name, false);
}

/* Returns a setting of the profile that is not supported. AWS tools prefer each of these settings, except
 * credential_process, to a key of the same profile. With that key, Cistern would have another identity. */
static const char *other_way(const char *profile, bool has_key)
{
    static const char *const ways[] = {"role_arn", "sso_session", "sso_start_url", "credential_process"};
    for (size_t i = 0; i < countof(ways) - has_key; i++)
        for (int config = 0; config < 2; config++) {
            auto_mem char *value = profile_value(profile, ways[i], config);
            if (value)
                return ways[i];
        }
    return NULL;
}

static struct creds_identity *from_profile(const char *asked)
{
    const char *profile = profile_name(asked);
    for (int config = 0; config < 2; config++) {
        auto_mem char *id = profile_value(profile, "aws_access_key_id", config);
        auto_mem char *secret = profile_value(profile, "aws_secret_access_key", config);
        if (!id || !secret)
            continue;
        struct creds_identity *i = creds_identity_new();
        i->access_key_id = take(&id);
        i->secret = take(&secret);
        i->session_token = profile_value(profile, "aws_session_token", config);
        return i;
    }
    return NULL;
}

/* The missing half of a key; NULL: the profile has neither. */
static const char *half_of_key(const char *profile)
{
    static const char *const halves[] = {"aws_access_key_id", "aws_secret_access_key"};
    for (size_t i = 0; i < 4; i++) {
        auto_mem char *value = profile_value(profile, halves[i / 2], i % 2);
        if (value)
            return halves[1 - i / 2];
    }
    return NULL;
}

static const char *missing_key(void)
{
    return env_get("AWS_ACCESS_KEY_ID") ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID";
}

static struct creds_identity *from_environment(void)
{
    const char *id = env_get("AWS_ACCESS_KEY_ID"), *secret = env_get("AWS_SECRET_ACCESS_KEY");
    const char *token = env_get("AWS_SESSION_TOKEN");
    if (!id || !secret)
        return NULL;
    struct creds_identity *i = creds_identity_new();
    /* Keys have no blanks; a file that was read into a variable often ends with a newline. */
    i->access_key_id = str_dup(str_trim(str_of(id)));
    i->secret = str_dup(str_trim(str_of(secret)));
    i->session_token = token ? str_dup(str_trim(str_of(token))) : NULL;
    return i;
}

/* ---- sources of credentials -------------------------------------------------------------------------------------- */

struct aws_source {
    char region[64];
    char *role_arn;            /* owned; a role that is assumed */
    struct creds_identity *as; /* owned reference: the identity that assumes the role; NULL: a token does */
    char *external_id;         /* owned; with `as` */
    char *token_file;          /* owned; web identity and container */
    char *token;               /* owned; container and grant: the token itself. Secret */
    char *session_name;        /* owned; of the role to assume; NULL: from the environment */
    char *url;                 /* owned; container, and the base of the metadata server */
    struct creds *creds;       /* whose source this is */
    /* State of the running fetch. */
    struct worker *worker;
    char session[TOKEN_MAX]; /* the metadata server's own token */
};

static void free_source(void *self)
{
    struct aws_source *s = self;
    free(s->role_arn);
    creds_identity_unref(s->as);
    free(s->external_id);
    free(s->token_file);
    secret_free(s->token);
    free(s->session_name);
    free(s->url);
    free(s);
}

static void keys_came(void *ctx, int status, struct str body, const struct err *err)
{
    creds_replied(((struct aws_source *)ctx)->creds, reply_keys, status, body, err);
}

/* The kubelet replaces the token file while this process runs: read it for each exchange. */
static bool read_token(struct aws_source *s, char **ret)
{
    struct err err;
    size_t len;
    if (file_read(AT_FDCWD, s->token_file, TOKEN_MAX, ret, &len, &err) < 0) {
        creds_refused(s->creds, &err);
        return false;
    }
    while (len > 0 && ((*ret)[len - 1] == '\n' || (*ret)[len - 1] == '\r'))
        (*ret)[--len] = '\0';
    return true;
}

/* ---- a role: STS ------------------------------------------------------------------------------------------------- */

#define FORM_TYPE STR("application/x-www-form-urlencoded")

static void sts_answered(void *ctx, int status, struct str body, const struct err *err)
{
    creds_replied(((struct aws_source *)ctx)->creds, reply_role, status, body, err);
}

static void write_form(const struct aws_source *s, const char *token, struct sbuf *form)
{
    const char *named = s->session_name ? s->session_name : env_get("AWS_ROLE_SESSION_NAME");
    sbuf_addf(form, "Action=%s&Version=2011-06-15&DurationSeconds=3600",
              s->as ? "AssumeRole" : "AssumeRoleWithWebIdentity");
    percent_encode_param("RoleArn", str_of(s->role_arn), form);
    percent_encode_param("RoleSessionName", str_of(named ? named : "cistern"), form);
    if (s->as)
        percent_encode_param("ExternalId", str_of(s->external_id), form);
    else
        percent_encode_param("WebIdentityToken", str_of(token), form);
}

/* AWS identifies the caller of AssumeRole by the signature. */
static void sign(const struct aws_source *s, struct str url, struct str form, int64_t wall_ns, struct sbuf *ret)
{
    struct sigv4_cache cache = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct endpoint e = {.tls = false};
    uint8_t sum[32];
    char hex[2 * sizeof sum + 1], when[SIGV4_TIME_MAX];
    if (endpoint_parse(url, &e, ERR_IGNORED) < 0)
        return; /* the exchange refuses it, too */
    const struct sigv4_header headers[] = {{STR("content-type"), FORM_TYPE},
                                           {STR("host"), e.authority},
                                           {STR("x-amz-date"), str_of(sigv4_time(wall_ns, when))},
                                           {STR("x-amz-security-token"), str_of(s->as->session_token)}};
    sha256(form, sum);
    sigv4_sign(&cache,
               &(struct sigv4_request){.method = STR("POST"),
                                       .path = STR("/"),
                                       .headers = headers,
                                       .header_count = countof(headers) - !s->as->session_token,
                                       .payload = str_of(hex_text(sum, sizeof sum, hex)),
                                       .wall_ns = wall_ns,
                                       .region = str_of(s->region),
                                       .service = STR("sts"),
                                       .access_key_id = str_of(s->as->access_key_id),
                                       .secret = str_of(s->as->secret)},
               ret);
}

static void fetch_role(struct creds *c, struct worker *w)
{
    struct aws_source *s = c->source.self;
    const char *endpoint = env_get("AWS_ENDPOINT_URL_STS");
    auto_mem char *token = NULL;
    char url[TRUST_URL_MAX], when[SIGV4_TIME_MAX];
    struct err err;
    if (!endpoint && trust_aws_url("sts", s->region, url, &err) < 0) {
        creds_refused(s->creds, &err);
        return;
    }
    if (!s->as && !s->token && !read_token(s, &token))
        return;
    auto_sbuf form = SBUF(2 * TOKEN_MAX);
    write_form(s, s->token ? s->token : token, &form);
    auto_sbuf authorization = SBUF(4096);
    int64_t now = clock_wall_ns();
    if (s->as)
        sign(s, str_of(endpoint ? endpoint : url), sbuf_str(&form), now, &authorization);
    const struct web_header headers[] = {{"content-type", FORM_TYPE},
                                         {"accept", STR("application/xml")},
                                         {"x-amz-date", str_of(sigv4_time(now, when))},
                                         {"authorization", sbuf_str(&authorization)},
                                         {"x-amz-security-token", str_of(s->as ? s->as->session_token : NULL)}};
    exchange_start(w, &(struct exchange_request){.method = "POST",
                                                 .url = endpoint ? endpoint : url,
                                                 .headers = headers,
                                                 .header_count = !s->as ? 2 : countof(headers) - !s->as->session_token,
                                                 .body = sbuf_str(&form),
                                                 .retry_after_ns = &c->retry_after_ns,
                                                 .ctx = s,
                                                 .done = sts_answered});
    explicit_bzero(form.ptr, form.len);
}

/* ---- container --------------------------------------------------------------------------------------------------- */

static void fetch_container(struct creds *c, struct worker *w)
{
    struct aws_source *s = c->source.self;
    auto_mem char *token = NULL;
    if (s->token_file && !read_token(s, &token))
        return;
    struct str sent = token ? str_of(token) : str_of(s->token);
    const struct web_header headers[] = {{"authorization", sent}};
    exchange_start(w, &(struct exchange_request){.method = "GET",
                                                 .url = s->url,
                                                 .headers = headers,
                                                 .header_count = sent.len ? 1 : 0,
                                                 .ctx = s,
                                                 .done = keys_came});
}

/* Plain HTTP may carry credentials only on this machine or its link, as in the vendor's SDKs. */
static bool may_be_asked(const char *url)
{
    struct endpoint e;
    if (endpoint_parse(str_of(url), &e, ERR_IGNORED) < 0)
        return false;
    return e.tls ||
           str_is_any(e.host, "localhost", "127.0.0.1", "[::1]", "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]");
}

/* ---- instance metadata, version 2 -------------------------------------------------------------------------------- */

static void ask_metadata(struct aws_source *s, const char *path,
                         void (*done)(void *ctx, int status, struct str body, const struct err *err))
{
    char url[URL_MAX];
    const struct web_header headers[] = {{"x-aws-ec2-metadata-token", str_of(s->session)}};
    snprintf(url, sizeof url, "%s/latest/meta-data/iam/security-credentials/%s", s->url, path);
    exchange_start(s->worker,
                   &(struct exchange_request){
                       .method = "GET", .url = url, .headers = headers, .header_count = 1, .ctx = s, .done = done});
}

static void role_came(void *ctx, int status, struct str body, const struct err *err)
{
    struct aws_source *s = ctx;
    struct str line, role = str_trim(body);
    if (err) {
        creds_refused(s->creds, err);
    } else if (status != 200 || !str_split(&role, '\n', &line) || line.len == 0 || line.len > 256) {
        struct err none;
        err_set(&none, ERR_DENIED, "this machine has no role (it answered %d)", status);
        creds_refused(s->creds, &none);
    } else {
        auto_sbuf path = SBUF(1024);
        percent_encode(str_trim(line), &path);
        ask_metadata(s, path.ptr, keys_came);
    }
}

static void session_came(void *ctx, int status, struct str body, const struct err *err)
{
    struct aws_source *s = ctx;
    struct err why;
    if (err) {
        creds_refused(s->creds, err);
    } else if (status != 200) {
        (void)reply_status(status, &why);
        creds_refused(s->creds, &why);
    } else {
        snprintf(s->session, sizeof s->session, "%.*s", STR_FMT(str_trim(body)));
        ask_metadata(s, "", role_came);
    }
}

static void fetch_metadata(struct creds *c, struct worker *w)
{
    struct aws_source *s = c->source.self;
    char url[URL_MAX];
    const struct web_header headers[] = {{"x-aws-ec2-metadata-token-ttl-seconds", STR("21600")}};
    s->worker = w;
    snprintf(url, sizeof url, "%s/latest/api/token", s->url);
    exchange_start(
        w, &(struct exchange_request){
               .method = "PUT", .url = url, .headers = headers, .header_count = 1, .ctx = s, .done = session_came});
}

/* ---- the chain --------------------------------------------------------------------------------------------------- */

static struct creds *fixed(const char *name, const char *method, struct creds_identity *own_i)
{
    return creds_new(&(struct creds_source){.name = name, .method = method}, own_i);
}

static struct creds *fetched(const char *name, const char *method, struct aws_source *own_s,
                             void (*fetch)(struct creds *c, struct worker *w))
{
    const struct creds_source source = {
        .name = name, .method = method, .self = own_s, .free_self = free_source, .fetch = fetch};
    return own_s->creds = creds_new(&source, NULL);
}

static int open_container(struct aws_source *own_s, const char *relative, const char *full, struct creds **ret,
                          struct err *err)
{
    const char *file = env_get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
               *token = env_get("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    char url[URL_MAX];
    snprintf(url, sizeof url, "%s%s", relative ? "http://169.254.170.2" : "", relative ? relative : full);
    if (!may_be_asked(url)) {
        free_source(own_s);
        return err_fail(err, ERR_INVALID, CIS_NO_CREDENTIALS,
                        "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor an address of this machine");
    }
    own_s->url = str_dup(str_of(url));
    own_s->token_file = file ? str_dup(str_of(file)) : NULL;
    own_s->token = token ? str_dup(str_of(token)) : NULL;
    *ret = fetched("the container's credentials", "container", own_s, fetch_container);
    return 0;
}

static int open_fetched(const char *region, struct creds **ret, struct err *err)
{
    const char *relative = env_get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = env_get("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *disabled = env_get("AWS_EC2_METADATA_DISABLED"),
               *service = env_get("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    bool is_half = !service && !env_get("AWS_ACCESS_KEY_ID") != !env_get("AWS_SECRET_ACCESS_KEY");
    bool is_disabled = is_half || (disabled && str_eq_nocase(str_of(disabled), STR("true")));
    if (!relative && !full && is_disabled)
        return err_fail(err, ERR_DENIED, CIS_NO_CREDENTIALS,
                        "no credentials for s3://: %s is not set, and there is no profile with a key", missing_key());
    struct aws_source *s = xcalloc(1, sizeof *s);
    snprintf(s->region, sizeof s->region, "%s", region);
    if (relative || full)
        return open_container(s, relative, full, ret, err);
    s->url = str_dup(str_of(service ? service : "http://169.254.169.254"));
    for (size_t len = strlen(s->url); len && s->url[len - 1] == '/';)
        s->url[--len] = '\0';
    *ret = fetched("the machine's metadata server", "metadata", s, fetch_metadata);
    return 0;
}

/* *ret is NULL if the profile is missing or empty. */
static int open_profile(const char *asked, struct creds **ret, struct err *err)
{
    struct creds_identity *i = from_profile(asked);
    const char *profile = profile_name(asked), *way = other_way(profile, i != NULL);
    *ret = NULL;
    const char *half = i ? NULL : half_of_key(profile);
    if (half)
        return err_fail(err, ERR_INVALID, CIS_CREDENTIALS_FILE_INVALID, "profile '%.64s' has no %s", profile, half);
    if (way) {
        creds_identity_unref(i);
        return err_fail(err, ERR_UNSUPPORTED, CIS_NO_CREDENTIALS,
                        "profile '%.64s': '%s' is not supported; run "
                        "aws configure export-credentials --profile %.64s --format env",
                        profile, way, profile);
    }
    if (i)
        *ret = fixed("the profile's key", "profile", i);
    return 0;
}

/* With `skipped`: the sources before the one in use. */
static int open_chain(const struct creds_options *o, struct sbuf *skipped, struct creds **ret, struct err *err)
{
    bool named = o->profile && o->profile[0];
    const char *role = env_get("AWS_ROLE_ARN"), *token_file = env_get("AWS_WEB_IDENTITY_TOKEN_FILE");
    struct creds_identity *i = NULL;
    if (!named && (i = from_environment()) != NULL) {
        *ret = fixed("the environment's key", "environment", i);
        return 0;
    }
    if (!named)
        sbuf_addf(skipped, "environment (%s is not set)", missing_key());
    if (!named && role && token_file) {
        struct aws_source *s = xcalloc(1, sizeof *s);
        snprintf(s->region, sizeof s->region, "%s", o->region);
        s->role_arn = str_dup(str_of(role));
        s->token_file = str_dup(str_of(token_file));
        *ret = fetched("the web identity's role", "web_identity", s, fetch_role);
        return 0;
    }
    if (!named)
        sbuf_addf(skipped, ", web identity (%s is not set)", role ? "AWS_WEB_IDENTITY_TOKEN_FILE" : "AWS_ROLE_ARN");
    int r = check_files(named, token_file, err);
    if (r == 0)
        r = open_profile(o->profile, ret, err);
    if (r < 0 || *ret)
        return r;
    if (named || env_get("AWS_PROFILE"))
        return err_fail(err, ERR_INVALID, CIS_NO_CREDENTIALS, "there is no profile '%s' with an access key",
                        profile_name(o->profile));
    sbuf_adds(skipped, ", profile 'default' (it has no access key)");
    return open_fetched(o->region, ret, err);
}

int creds_open_aws(const struct creds_options *o, struct creds **ret, struct err *err)
{
    auto_sbuf skipped = SBUF(1024);
    int r = open_chain(o, &skipped, ret, err);
    if (r == 0)
        creds_note_skipped(*ret, &skipped);
    return r;
}

int creds_open_aws_grant(const struct grant *g, struct creds **ret, struct err *err)
{
    if (g->token.len >= TOKEN_MAX)
        return err_set(err, ERR_INVALID, "the token is longer than %d bytes", TOKEN_MAX - 1);
    if (g->region.len >= sizeof((struct aws_source *)0)->region)
        return err_set(err, ERR_INVALID, "the region '%.*s' is too long", STR_FMT(str_sub(g->region, 0, 100)));
    struct aws_source *s = xcalloc(1, sizeof *s);
    snprintf(s->region, sizeof s->region, "%.*s", STR_FMT(g->region.len ? g->region : STR("us-east-1")));
    s->role_arn = str_dup(g->role_arn);
    s->token = str_dup(g->token);
    s->as = g->as ? creds_identity_ref(g->as) : NULL;
    s->external_id = str_dup(g->external_id);
    s->session_name = str_dup(g->session.len ? g->session : STR("cistern"));
    *ret = fetched("AWS's token exchange", NULL, s, fetch_role);
    return 0;
}
