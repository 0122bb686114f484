/* SPDX-License-Identifier: Apache-2.0 */
/* Gets credentials from the broker in the cluster's controller. This process is a Job or a node driver, and its
 * token proves it. */
#include "exchange.h"
#include "private.h"
#include "reply.h"
#include "util/env.h"
#include "util/file.h"
#include "util/json.h"
#include <fcntl.h>
#include <stdio.h>

#define TOKEN_FILE "/var/run/secrets/cistern.io/broker/token"
#define CA_FILE "/var/run/secrets/cistern.io/ca/ca.crt"

enum { FILE_MAX = 64 << 10, URL_MAX = 1024 };

struct broker_source {
    enum creds_kind kind;
    char *url;        /* owned: of the call */
    char *connect_to; /* owned: "10.96.3.4:443"; NULL: found by name */
    char *volume;     /* owned: the CisternVolume's name */
    char *purpose;    /* owned: "hydrate" or "export" */
    char *token_file; /* owned */
    char *ca_file;    /* owned */
    struct creds *creds;
};

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
    if (!err.id || err_kind_of(err.id) == ERR_KIND_UNREACHABLE)
        err_advise(&err, CIS_BROKER_UNREACHABLE);
    creds_fetched(s->creds, NULL, &err);
}

static void answered(void *ctx, int status, struct str body, const struct err *err)
{
    struct broker_source *s = ctx;
    struct creds_identity *i = NULL;
    struct err why;
    if (err)
        refuse(s, err);
    else if (reply_broker(status, body, s->kind, &i, &why) < 0)
        refuse(s, &why);
    else
        creds_fetched(s->creds, i, NULL);
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static char *call_body(const struct broker_source *s)
{
    char refused[CREDS_FINGERPRINT_SIZE];
    auto_json j = json_new_object();
    json_set_str(j, "volume", str_of(s->volume));
    json_set_str(j, "for", str_of(s->purpose));
    json_set_str(j, "scheme", str_of(creds_kind_name(s->kind)));
    if (creds_rejected_fingerprint(s->creds, refused))
        json_set_str(j, "refused", str_of(refused));
    return json_text(j, 0);
}

/* The kubelet replaces the token, and the CA changes with the broker's certificate: read both files for each call. */
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
    auto_sbuf authorization = SBUF(FILE_MAX + 16);
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

/* The service variables that the kubelet sets: then the name needs no cluster DNS. */
static char *connect_to(void)
{
    const char *host = env_get("CISTERN_BROKER_SERVICE_HOST"), *port = env_get("CISTERN_BROKER_SERVICE_PORT");
    char text[300];
    if (!host || !port)
        return NULL;
    bool is_v6 = strchr(host, ':') && host[0] != '[';
    snprintf(text, sizeof text, "%s%s%s:%s", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
    return str_dup(str_of(text));
}

static char *or_default(const char *variable, const char *otherwise)
{
    const char *value = env_get(variable);
    return str_dup(str_of(value ? value : otherwise));
}

int creds_open_broker(enum creds_kind kind, struct creds **ret, struct err *err)
{
    const char *base = env_get("CISTERN_BROKER_URL"), *volume = env_get("CISTERN_BROKER_VOLUME");
    const char *purpose = env_get("CISTERN_BROKER_FOR");
    char url[URL_MAX];
    if (strncmp(base, "https://", 8) != 0 || strlen(base) > URL_MAX / 2)
        return err_fail(err, ERR_INVALID, CIS_BROKER_UNREACHABLE,
                        "CISTERN_BROKER_URL '%.200s' is not https://cistern-broker.NAMESPACE.svc", base);
    if (!volume || !purpose || (strcmp(purpose, "hydrate") != 0 && strcmp(purpose, "export") != 0))
        return err_fail(
            err, ERR_INVALID, CIS_BROKER_UNREACHABLE,
            "CISTERN_BROKER_URL is set without CISTERN_BROKER_VOLUME and CISTERN_BROKER_FOR (hydrate or export)");
    struct str at = str_of(base);
    while (str_ends(at, STR("/")))
        at.len--;
    snprintf(url, sizeof url, "%.*s/v1/credentials", STR_FMT(at));
    struct broker_source *s = xcalloc(1, sizeof *s);
    s->kind = kind;
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
