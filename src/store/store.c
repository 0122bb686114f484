/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store.h"
#include "backend.h"
#include "creds/trust.h"
#include "denials.h"
#include "hedge.h"
#include "telemetry.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/thread.h"
#include <fcntl.h>

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static struct store_retry with_defaults(struct store_retry r)
{
    if (r.attempts_max == 0)
        r.attempts_max = STORE_ATTEMPTS_DEFAULT;
    if (r.elapsed_max_ns == 0)
        r.elapsed_max_ns = 1800 * NS_PER_SECOND;
    if (r.backoff_base_ns == 0)
        r.backoff_base_ns = 250 * NS_PER_MS;
    if (r.backoff_cap_ns == 0)
        r.backoff_cap_ns = 32 * NS_PER_SECOND;
    return r;
}

/* libcurl reads the file at the first TLS connection only, and an http:// endpoint has none. */
static int check_ca_file(const char *path, struct err *err)
{
    enum { FILE_MAX = 16 << 20 };
    auto_mem char *text = NULL;
    size_t len;
    struct err cause;
    if (file_read(AT_FDCWD, path, FILE_MAX, &text, &len, &cause) < 0)
        return err_fail(err, ERR_INVALID, CIS_CERTIFICATE_UNTRUSTED, "the file of CA certificates: %s", cause.text);
    if (!strstr(text, "-----BEGIN "))
        return err_fail(err, ERR_INVALID, CIS_CERTIFICATE_UNTRUSTED, "'%s' has no CA certificate in PEM form", path);
    return 0;
}

int store_open(const struct store_options *o, struct store **ret, struct err *err)
{
    int r = uri_check(o->uri, err);
    if (r < 0)
        return r;

    struct uri uri = uri_split(o->uri);
    auto_store s = xcalloc(1, sizeof *s);
    s->backend = backend_of(uri.scheme);
    s->scheme = uri.scheme;
    s->caps = s->backend->caps;
    s->bucket = str_dup(uri.bucket);
    s->prefix = str_dup(uri.prefix);
    s->prefix_len = uri.prefix.len;
    s->ca = o->ca.len ? str_dup(o->ca) : NULL;
    s->ca_file = o->ca_file && !s->ca ? str_dup(str_of(o->ca_file)) : NULL;
    pthread_mutex_init(&s->lock, NULL);
    s->retry = with_defaults(o->retry);
    s->writes.rate.slack_ns = s->listings.rate.slack_ns =
        5 * NS_PER_MS; /* a store that limits requests each second refuses bursts */
    s->telemetry = telemetry_new(s->scheme->name);
    s->hedge = xcalloc(1, sizeof *s->hedge);
    hedge_init(s->hedge);
    s->denials = xcalloc(1, sizeof *s->denials);
    s->guard = o->guard;
    r = s->guard ? 0 : trust_environment(&s->guard, err);
    if (r == 0)
        r = s->backend->open(s, o, &uri, err);
    if (r == 0 && s->ca_file)
        r = check_ca_file(s->ca_file, err);
    if (r < 0)
        return r;
    if (s->endpoint)
        job_pace_writes(s);
    *ret = take(&s);
    return 0;
}

void store_set_retry(struct store *s, struct store_retry retry)
{
    auto_lock(&s->lock);
    s->retry = with_defaults(retry);
}

void store_free(struct store *s)
{
    if (!s)
        return;
    pthread_mutex_destroy(&s->lock);
    s->backend->close(s);
    creds_free(s->creds);
    free(s->telemetry);
    free(s->hedge);
    free(s->denials);
    free(s->bucket);
    free(s->prefix);
    free(s->endpoint);
    free(s->ca_file);
    free(s->ca);
    free(s);
}

int store_open_creds(struct store *s, const struct store_options *o, const char *region, struct err *err)
{
    return creds_open(&(struct creds_options){.kind = s->caps.creds,
                                              .anonymous = o->auth == STORE_AUTH_ANONYMOUS,
                                              .identity = o->identity,
                                              .profile = o->profile,
                                              .region = region},
                      &s->creds, err);
}

const struct creds *store_creds(const struct store *s)
{
    return s->creds;
}

const struct store_caps *store_caps(const struct store *s)
{
    return &s->caps;
}

const char *store_scheme(const struct store *s)
{
    return s->scheme->name;
}

const char *store_endpoint(const struct store *s)
{
    return s->endpoint;
}

struct str store_bucket(const struct store *s)
{
    return str_of(s->bucket);
}

struct str store_prefix(const struct store *s)
{
    return (struct str){s->prefix, s->prefix_len};
}

void store_trust(const struct store *s, struct web_options *ret)
{
    ret->ca_file = s->ca_file;
    ret->ca = s->ca ? str_of(s->ca) : STR_NULL;
    ret->guard = s->guard;
}

uint64_t store_reads_at_first(const struct store *s)
{
    return s->reads_at_first;
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

struct store_job *store_get(struct store *s, struct worker *w, const struct store_get *g)
{
    struct job_args args = {.write.key = g->object->key,
                            .object = *g->object,
                            .offset = g->offset,
                            .len = g->len,
                            .rate = g->rate,
                            .new_connection = g->new_connection,
                            .patient = g->patient,
                            .on_head = g->on_head,
                            .on_data = g->on_data};
    struct store_job *j = job_make(s, w, STORE_OP_GET, &args);
    j->ctx = g->ctx;
    j->on_done = g->on_done;
    j->attempt = g->attempts;
    return job_submit(j);
}

static struct store_job *submit(struct store *s, struct worker *w, enum store_op op, const struct job_args *args,
                                store_done *done, void *ctx)
{
    struct store_job *j = job_make(s, w, op, args);
    j->on_done = done;
    j->ctx = ctx;
    return job_submit(j);
}

struct store_job *store_head(struct store *s, struct worker *w, struct str key, store_done *done, void *ctx)
{
    return submit(s, w, STORE_OP_HEAD, &(struct job_args){.write.key = key}, done, ctx);
}

struct store_job *store_head_digest(struct store *s, struct worker *w, struct str key, uint64_t size_bytes,
                                    enum hash_kind kind, store_done *done, void *ctx)
{
    struct job_args args = {.write = {.key = key, .digest_kind = kind}, .alike_bytes = size_bytes};
    return submit(s, w, STORE_OP_HEAD, &args, done, ctx);
}

struct store_job *store_delete(struct store *s, struct worker *w, struct str key, store_done *done, void *ctx)
{
    return submit(s, w, STORE_OP_DELETE, &(struct job_args){.write.key = key}, done, ctx);
}

struct store_job *store_delete_version(struct store *s, struct worker *w, struct str key, struct str version,
                                       store_done *done, void *ctx)
{
    return submit(s, w, STORE_OP_DELETE, &(struct job_args){.write.key = key, .version = version}, done, ctx);
}

struct store_job *store_upload_sweep(struct store *s, struct worker *w, struct str key, store_done *done, void *ctx)
{
    return submit(s, w, STORE_OP_SWEEP, &(struct job_args){.write.key = key}, done, ctx);
}

struct store_job *store_list_page(struct store *s, struct worker *w, const struct store_page *p)
{
    return submit(s, w, STORE_OP_LIST, &(struct job_args){.page = *p}, NULL, p->ctx);
}

struct store_job *store_put(struct store *s, struct worker *w, const struct store_write *u,
                            const struct store_body *body, struct rate *rate, store_done *done, void *ctx)
{
    return submit(s, w, STORE_OP_PUT, &(struct job_args){.write = *u, .body = *body, .rate = rate}, done, ctx);
}

struct store_job *store_probe(struct store *s, struct worker *w, const struct store_write *u,
                              const struct store_body *body, struct rate *rate, store_done *done, void *ctx)
{
    return submit(s, w, STORE_OP_PROBE, &(struct job_args){.write = *u, .body = *body, .rate = rate}, done, ctx);
}

bool store_wants_probe(const struct store *s)
{
    return s->backend->wants_probe && s->backend->wants_probe(s);
}

bool store_honours(const struct store *s, enum store_if condition, bool multipart)
{
    return !s->backend->honours || s->backend->honours(s, condition, multipart);
}

struct store_job *store_upload_begin(struct store *s, struct worker *w, const struct store_write *u, store_done *done,
                                     void *ctx)
{
    return submit(s, w, STORE_OP_BEGIN, &(struct job_args){.write = *u}, done, ctx);
}

struct store_job *store_upload_part(struct store *s, struct worker *w, const struct store_write *u, unsigned number,
                                    const struct store_body *body, struct rate *rate, store_done *done, void *ctx)
{
    struct job_args args = {.write = *u, .number = number, .body = *body, .rate = rate};
    return submit(s, w, STORE_OP_PART, &args, done, ctx);
}

struct store_job *store_upload_complete(struct store *s, struct worker *w, const struct store_write *u,
                                        const struct store_parts *parts, store_done *done, void *ctx)
{
    return submit(s, w, STORE_OP_COMPLETE, &(struct job_args){.write = *u, .parts = *parts}, done, ctx);
}

struct store_job *store_upload_abort(struct store *s, struct worker *w, const struct store_write *u, store_done *done,
                                     void *ctx)
{
    return submit(s, w, STORE_OP_ABORT, &(struct job_args){.write = *u}, done, ctx);
}
