/* SPDX-License-Identifier: Apache-2.0 */
#include "creds/endpoint.h"
#include "creds/trust.h"
#include "s3.h"
#include "util/env.h"
#include <stdio.h>

static bool wants_path_style(const struct store *s, const struct store_options *o, const struct endpoint *e)
{
    struct str bucket = str_of(s->bucket);
    return o->path_style || endpoint_is_address(e->host) || str_find(e->host, '.') < 0 ||
           (e->tls && str_find(bucket, '.') >= 0); /* a wildcard certificate covers one label */
}

/* The URL for messages. NULL: unknown; s3_base_url() has reported why. */
static char *server_url(const struct s3 *s3)
{
    char aws[TRUST_URL_MAX];
    struct endpoint e;
    if (s3_endpoint(s3, aws, &e, ERR_IGNORED) < 0)
        return NULL;
    auto_sbuf b = SBUF(4096);
    char *url = NULL;
    sbuf_addf(&b, "http%s://%.*s%.*s", e.tls ? "s" : "", STR_FMT(e.authority), STR_FMT(e.path));
    return sbuf_take(&b, &url, ERR_IGNORED) < 0 ? NULL : url;
}

static const char *first_of(const char *a, const char *b, const char *c, const char *otherwise)
{
    const char *all[] = {a, b, c};
    for (size_t i = 0; i < countof(all); i++)
        if (all[i] && all[i][0])
            return all[i];
    return otherwise;
}

static int choose_region(struct s3 *s3, const struct store_options *o, struct err *err)
{
    const char *named = first_of(o->region, env_get("AWS_REGION"), env_get("AWS_DEFAULT_REGION"), NULL);
    auto_mem char *profile = named ? NULL : creds_aws_profile_value(o->profile, "region");
    const char *region = named ? named : profile ? profile : "us-east-1";
    if (!s3_is_region(str_of(region)))
        return err_fail(err, ERR_INVALID, CIS_ENDPOINT_INVALID, "'%.64s' is not a region", region);
    snprintf(s3->region, sizeof s3->region, "%s", region);
    return 0;
}

static int s3_open(struct store *s, const struct store_options *o, const struct uri *, struct err *err)
{
    struct s3 *s3 = s->self = xcalloc(1, sizeof *s3);
    struct endpoint e = {.tls = true, .host = STR("s3.amazonaws.com")};
    pthread_mutex_init(&s3->lock, NULL);
    pthread_mutex_init(&s3->cache.lock, NULL);
    const char *endpoint = first_of(o->endpoint, env_get("AWS_ENDPOINT_URL_S3"), env_get("AWS_ENDPOINT_URL"), NULL);
    const char *ca = first_of(o->ca_file, env_get("AWS_CA_BUNDLE"), NULL, NULL);
    int r = choose_region(s3, o, err);
    if (r == 0 && endpoint)
        r = endpoint_parse(str_of(endpoint), &e, err);
    if (r < 0)
        return r;
    s->is_stranger = s->guard && trust_of(CREDS_AWS, str_of(endpoint), s->guard) == TRUST_NOBODY;
    s3->endpoint = endpoint ? str_dup(str_of(endpoint)) : NULL;
    s3->is_named = endpoint != NULL;
    s3->tls = e.tls;
    s3->path_style = wants_path_style(s, o, &e);
    s3->requester_pays = o->billing != NULL;
    bool is_amazon = str_ends(e.host, STR(".amazonaws.com")) || str_ends(e.host, STR(".amazonaws.com.cn"));
    if (is_amazon && str_ends(str_of(s->bucket), STR("--x-s3")))
        return err_fail(err, ERR_UNSUPPORTED, CIS_URI_INVALID,
                        "s3://%s: directory buckets (S3 Express) are not supported; use a general purpose bucket",
                        s->bucket);
    if (ca && !s->ca_file && !s->ca)
        s->ca_file = str_dup(str_of(ca));
    /* A directory bucket does not sort its keys, and lists only from the start. */
    if (str_ends(str_of(s->bucket), STR("--x-s3")))
        s->caps.lists_sorted = s->caps.lists_from_any_key = false;
    s3->base = s3_base_url(s, s3, err);
    if (!s3->base)
        return -(int)err->code;
    s->endpoint = server_url(s3);
    return store_open_creds(s, o, s3->region, err);
}

static void s3_close(struct store *s)
{
    struct s3 *s3 = s->self;
    if (!s3)
        return;
    pthread_mutex_destroy(&s3->lock);
    pthread_mutex_destroy(&s3->cache.lock);
    explicit_bzero(s3->cache.key, sizeof s3->cache.key);
    free(s3->base);
    free(s3->endpoint);
    free(s3);
}

/* ---- dispatch ---------------------------------------------------------------------------------------------------- */

static void s3_start(struct store_job *job)
{
    static const struct call_steps *const steps[STORE_OPS] = {
        [STORE_OP_GET] = &s3_get_steps,       [STORE_OP_HEAD] = &s3_head_steps,
        [STORE_OP_LIST] = &s3_list_steps,     [STORE_OP_PUT] = &s3_put_steps,
        [STORE_OP_PROBE] = &s3_probe_steps,   [STORE_OP_BEGIN] = &s3_begin_steps,
        [STORE_OP_PART] = &s3_part_steps,     [STORE_OP_COMPLETE] = &s3_complete_steps,
        [STORE_OP_ABORT] = &s3_abort_steps,   [STORE_OP_SWEEP] = &s3_sweep_steps,
        [STORE_OP_DELETE] = &s3_delete_steps,
    };
    struct s3_job *j = container_of(job, struct s3_job, call.job);
    object_page_init(&j->page);
    j->bare = false;
    call_init(&j->call);
    j->steps = steps[job->op];
    if (!s3_look_first(&j->call))
        call_go(&j->call, j->steps);
}

static void s3_release(struct store_job *job)
{
    struct s3_job *j = container_of(job, struct s3_job, call.job);
    s3_document_free(j->document);
    j->document = NULL;
    object_page_done(&j->page);
    call_release(job);
}

const struct store_backend backend_s3 = {
    .caps = {.creds = CREDS_AWS,
             .lists_sorted = true,
             .lists_from_any_key = true,
             .lists_best_digest = false,
             .conditions = STORE_CONDITIONS_VARY,
             .upload_digest = HASH_CRC64NVME,
             .part_bytes_min = 5 << 20,
             .parts_max = 10000},
    .permissions = {[STORE_OP_GET] = "s3:GetObject",
                    [STORE_OP_HEAD] = "s3:GetObject (or s3:ListBucket, if there is no such object)",
                    [STORE_OP_LIST] = "s3:ListBucket",
                    [STORE_OP_PUT] = "s3:PutObject",
                    [STORE_OP_PROBE] = "s3:PutObject",
                    [STORE_OP_BEGIN] = "s3:PutObject",
                    [STORE_OP_PART] = "s3:PutObject",
                    [STORE_OP_COMPLETE] = "s3:PutObject",
                    [STORE_OP_ABORT] = "s3:AbortMultipartUpload",
                    [STORE_OP_SWEEP] = "s3:ListBucketMultipartUploads",
                    [STORE_OP_DELETE] = "s3:DeleteObject"},
    .job_size = sizeof(struct s3_job),
    .open = s3_open,
    .close = s3_close,
    .start = s3_start,
    .stop = call_stop,
    .resume = call_resume,
    .release = s3_release,
    .wants_probe = s3_wants_probe,
    .honours = s3_honours,
};
