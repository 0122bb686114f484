/* SPDX-License-Identifier: Apache-2.0 */
#include "s3.h"
#include "endpoint.h"
#include "percent.h"
#include "redirect.h"
#include "store/trust.h"
#include "util/clock.h"
#include "util/env.h"
#include "util/hash.h"
#include <stdio.h>

/* ---- where the bucket is ----------------------------------------------------------------------------------------- */

static bool wants_path_style(const struct store *s, const struct store_options *o, const struct endpoint *e)
{
    struct str bucket = str_of(s->bucket);
    return o->path_style || endpoint_is_address(e->host) || str_find(e->host, '.') < 0 ||
           (e->tls && str_find(bucket, '.') >= 0); /* a wildcard certificate covers one label */
}

/* What was named, or AWS's own of the region. buf of TRUST_URL_MAX, which the result may borrow. */
static int current_endpoint(const struct s3 *s3, char *buf, struct endpoint *ret, struct err *err)
{
    int r = s3->endpoint ? 0 : trust_aws_url("s3", s3->region, buf, err);
    return r < 0 ? r : endpoint_parse(str_of(s3->endpoint ? s3->endpoint : buf), ret, err);
}

/* The part of every URL before the key: "https://host/bucket" or "https://bucket.host". */
static char *base_url(const struct store *s, const struct s3 *s3, struct err *err)
{
    struct endpoint e;
    char aws[TRUST_URL_MAX];
    if (current_endpoint(s3, aws, &e, err) < 0)
        return NULL;
    auto_sbuf b;
    sbuf_init(&b, 4096);
    sbuf_addf(&b, "http%s://", e.tls ? "s" : "");
    if (!s3->path_style)
        sbuf_addf(&b, "%s.", s->bucket);
    sbuf_add(&b, e.authority);
    sbuf_add(&b, e.path);
    if (s3->path_style)
        sbuf_addf(&b, "/%s", s->bucket);
    char *url = NULL;
    return sbuf_take(&b, &url, err) < 0 ? NULL : url;
}

static const char *first_of(const char *a, const char *b, const char *c, const char *otherwise)
{
    const char *all[] = {a, b, c};
    for (size_t i = 0; i < countof(all); i++)
        if (all[i] && all[i][0])
            return all[i];
    return otherwise;
}

static bool is_region(struct str s)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    for (size_t i = 0; i < s.len; i++)
        if (!memchr(letters, s.ptr[i], sizeof letters - 1))
            return false;
    return s.len > 0 && s.len < sizeof((struct s3 *)0)->region;
}

static int choose_region(struct s3 *s3, const struct store_options *o, struct err *err)
{
    const char *named = first_of(o->region, env_get("AWS_REGION"), env_get("AWS_DEFAULT_REGION"), NULL);
    auto_mem char *profile = named ? NULL : creds_aws_profile_value(o->profile, "region");
    const char *region = named ? named : profile ? profile : "us-east-1";
    if (!is_region(str_of(region))) {
        err_set(err, ERR_INVALID, "'%.64s' is not a region", region);
        return err_advise(err, 1002, "write it as eu-west-1");
    }
    snprintf(s3->region, sizeof s3->region, "%s", region);
    return 0;
}

static int s3_open(struct store *s, const struct store_options *o, const struct uri *u, struct err *err)
{
    struct s3 *s3 = s->self = xcalloc(1, sizeof *s3);
    struct endpoint e = {.tls = true, .host = STR("s3.amazonaws.com")};
    (void)u;
    pthread_mutex_init(&s3->lock, NULL);
    pthread_mutex_init(&s3->cache.lock, NULL);
    const char *endpoint = first_of(o->endpoint, env_get("AWS_ENDPOINT_URL_S3"), env_get("AWS_ENDPOINT_URL"), NULL);
    const char *ca = first_of(o->ca_file, env_get("AWS_CA_BUNDLE"), NULL, NULL);
    int r = choose_region(s3, o, err);
    if (r == 0 && endpoint)
        r = endpoint_parse(str_of(endpoint), &e, err);
    if (r < 0)
        return r;
    s->is_stranger = s->guard && trust_of("s3", str_of(endpoint), s->guard) == TRUST_NOBODY;
    s3->endpoint = endpoint ? str_dup(str_of(endpoint)) : NULL;
    s3->is_named = endpoint != NULL;
    s3->tls = e.tls;
    s3->path_style = wants_path_style(s, o, &e);
    s3->requester_pays = o->billing != NULL;
    bool is_amazon = str_ends(e.host, STR(".amazonaws.com")) || str_ends(e.host, STR(".amazonaws.com.cn"));
    if (is_amazon && str_ends(str_of(s->bucket), STR("--x-s3"))) {
        err_set(err, ERR_UNSUPPORTED, "'%s' is a directory bucket (S3 Express), which speaks another dialect",
                s->bucket);
        return err_advise(err, 1001, "copy the data to a general purpose bucket");
    }
    if (ca && !s->ca_file && !s->ca)
        s->ca_file = str_dup(str_of(ca));
    s3->base = base_url(s, s3, err);
    if (!s3->base)
        return -(int)err->code;
    return creds_open_aws(o, s3->region, &s3->creds, err);
}

static void s3_close(struct store *s)
{
    struct s3 *s3 = s->self;
    if (!s3)
        return;
    creds_free(s3->creds);
    pthread_mutex_destroy(&s3->lock);
    pthread_mutex_destroy(&s3->cache.lock);
    explicit_bzero(s3->cache.key, sizeof s3->cache.key);
    free(s3->base);
    free(s3->endpoint);
    free(s3);
}

/* ---- a request --------------------------------------------------------------------------------------------------- */

void s3_begin(struct call *c, const char *method, struct str key, struct str query)
{
    struct s3 *s3 = c->job.store->self;
    c->method = method;
    pthread_mutex_lock(&s3->lock);
    sbuf_adds(&c->url, s3->base);
    snprintf(s3_of(c)->region, sizeof s3->region, "%s", s3->region);
    pthread_mutex_unlock(&s3->lock);
    sbuf_addc(&c->url, '/');
    percent_encode_path(key, &c->url);
    s3_of(c)->query_at = c->url.len;
    if (query.len) {
        sbuf_addc(&c->url, '?');
        sbuf_add(&c->url, query);
    }
}

struct str s3_payload(struct call *c, char *buf)
{
    uint8_t sum[32];
    sha256(sbuf_str(&c->sent), sum);
    return (struct str){hex_text(sum, sizeof sum, buf), 2 * sizeof sum};
}

static size_t sorted_headers(const struct call *c, struct str host, struct sigv4_header *ret)
{
    size_t count = 0;
    ret[count++] = (struct sigv4_header){STR("host"), host};
    for (size_t i = 0; i < c->header_count; i++) {
        struct sigv4_header h = {str_of(c->headers[i].name), call_header_value(c, i)};
        size_t at = count++;
        if (str_eq(h.name, STR("accept-encoding"))) { /* a proxy may rewrite it */
            count--;
            continue;
        }
        for (; at > 0 && str_cmp(ret[at - 1].name, h.name) > 0; at--)
            ret[at] = ret[at - 1];
        ret[at] = h;
    }
    return count;
}

/* The URL is scheme://host/path?query: the signature is over its very bytes. */
static void split_url(const struct call *c, struct str *ret_host, struct str *ret_path, struct str *ret_query)
{
    struct str url = sbuf_str(&c->url);
    size_t query_at = s3_of((struct call *)(uintptr_t)c)->query_at;
    size_t host_at = str_starts(url, STR("https://")) ? 8 : 7;
    struct str rest = str_sub(url, host_at, query_at - host_at);
    size_t slash = (size_t)str_find(rest, '/');
    *ret_host = str_sub(rest, 0, slash);
    *ret_path = str_from(rest, slash);
    *ret_query = str_from(url, query_at + 1);
}

void s3_sign(struct call *c, struct str payload)
{
    struct s3 *s3 = c->job.store->self;
    struct sigv4_header headers[CALL_HEADERS_MAX + 1];
    struct sigv4_request r = {.method = str_of(c->method),
                              .headers = headers,
                              .payload = payload,
                              .wall_ns = clock_wall_ns(),
                              .region = str_of(s3_of(c)->region),
                              .service = STR("s3")};
    char when[SIGV4_TIME_MAX];
    struct str host;
    /* S3 gives the stored bytes whatever we say; a proxy on the way must not compress them for us. */
    call_header(c, "accept-encoding", STR("identity"));
    if (s3->requester_pays)
        call_header(c, "x-amz-request-payer", STR("requester"));
    if (c->identity->anonymous)
        return;
    call_header(c, "x-amz-content-sha256", payload);
    call_header(c, "x-amz-date", str_of(sigv4_time(r.wall_ns, when)));
    if (c->identity->session_token)
        call_header(c, "x-amz-security-token", str_of(c->identity->session_token));
    if (c->url.overflow || c->words.overflow)
        return; /* told by the caller */
    split_url(c, &host, &r.path, &r.query);
    r.header_count = sorted_headers(c, host, headers);
    r.access_key_id = str_of(c->identity->access_key_id);
    r.secret = str_of(c->identity->secret);
    auto_sbuf authorization;
    sbuf_init(&authorization, 4096);
    sigv4_sign(&s3->cache, &r, &authorization);
    call_header(c, "authorization", sbuf_str(&authorization));
}

/* ---- an answer --------------------------------------------------------------------------------------------------- */

int s3_garbled(struct err *err)
{
    err->code = ERR_CORRUPT; /* what a number calls invalid are the store's words, not our caller's */
    return err_advise(err, 1601, "check that the endpoint is an S3 server, and any proxy between");
}

static int parse(struct call *c, const struct xml_answer **ret, struct err *err)
{
    struct s3_job *j = s3_of(c);
    if (!j->xml)
        j->xml = xml_new(&j->page);
    int r = xml_read(j->xml, sbuf_str(&c->got), err);
    if (r < 0)
        return s3_garbled(err);
    *ret = xml_answer(j->xml);
    return 0;
}

static bool is_error(const struct xml_answer *a)
{
    return str_eq(a->root, STR("Error")) || a->code.len > 0;
}

bool s3_parse(struct call *c, enum s3_document want, const struct xml_answer **ret)
{
    static const char *const roots[] = {[S3_BEGUN] = "InitiateMultipartUploadResult",
                                        [S3_COMPLETED] = "CompleteMultipartUploadResult",
                                        [S3_OBJECTS] = "ListBucketResult",
                                        [S3_UPLOADS] = "ListMultipartUploadsResult"};
    const struct xml_answer *a;
    int r = parse(c, &a, &c->err);
    if (r == 0 && is_error(a)) {
        s3_refused(c, 500);
        return false;
    }
    const bool has[] = {[S3_BEGUN] = r == 0 && a->upload_id.len > 0,
                        [S3_COMPLETED] = r == 0 && a->etag.len > 0,
                        [S3_OBJECTS] = r == 0 && a->is_list,
                        [S3_UPLOADS] = r == 0 && a->is_list};
    if (r == 0 && !has[want] && !str_eq(a->root, str_of(roots[want]))) {
        err_set(&c->err, ERR_CORRUPT, "a '%s' was asked for and a '%.*s' came", roots[want], STR_FMT(a->root));
        r = s3_garbled(&c->err);
    }
    if (r < 0)
        call_end(c, r);
    else
        *ret = a;
    return r == 0;
}

int s3_late_status(struct call *c, int status)
{
    static const struct {
        const char *code;
        int status;
    } words[] = {{"NoSuchUpload", 404},   {"PreconditionFailed", 412}, {"ConditionalRequestConflict", 409},
                 {"InvalidPart", 400},    {"InvalidPartOrder", 400},   {"EntityTooSmall", 400},
                 {"InvalidRequest", 400}, {"BadDigest", 400},          {"AccessDenied", 403},
                 {"SlowDown", 503},       {"ServiceUnavailable", 503}};
    const struct xml_answer *a;
    struct err ignored;
    if (!c->success || parse(c, &a, &ignored) < 0 || !is_error(a))
        return status;
    c->success = false;
    for (size_t i = 0; i < countof(words); i++)
        if (str_eq(a->code, str_of(words[i].code)))
            return words[i].status;
    return 500;
}

/* Another region answers 301, 307 while the bucket is new, or 400 with the right one in its document; to a HEAD, which
 * has none, in its headers. */
static struct str told_region(const struct call *c, int status, const struct xml_answer *a)
{
    struct str region = call_answer_header(c, "x-amz-bucket-region");
    bool is_bare = status == 400 && str_eq(str_of(c->method), STR("HEAD"));
    if (status != 301 && status != 307 && !is_bare && !str_eq(a->code, STR("AuthorizationHeaderMalformed")) &&
        !str_eq(a->code, STR("IllegalLocationConstraintException")))
        return STR_NULL;
    return region.len ? region : a->region;
}

/* What the answer says of where the bucket is, as far as we go there. */
static void told_place(const struct call *c, int status, const struct xml_answer *a, struct redirect *ret)
{
    struct s3 *s3 = c->job.store->self;
    struct str region = told_region(c, status, a), location = call_answer_header(c, "location");
    char aws[TRUST_URL_MAX];
    struct endpoint from;
    struct err ignored;
    pthread_mutex_lock(&s3->lock);
    bool leads = call_is_redirect(status) && current_endpoint(s3, aws, &from, &ignored) == 0 &&
                 redirect_read(location, &from, str_of(s3->region), str_of(c->job.store->bucket), ret);
    pthread_mutex_unlock(&s3->lock);
    if (!leads)
        *ret = (struct redirect){0};
    /* What a stranger says becomes part of a host name: it has to look like a region. */
    if (is_region(region))
        snprintf(ret->region, sizeof ret->region, "%.*s", STR_FMT(region));
}

/* All that is asked from now on is asked there. A job is sent elsewhere once: two that point at each other end in what
 * the second one said. */
static bool move_to(struct call *c, const struct redirect *to)
{
    struct s3 *s3 = c->job.store->self;
    struct err ignored;
    bool is_other = to->region[0] && strcmp(to->region, s3_of(c)->region) != 0;
    if (s3_of(c)->moved || !(is_other || (to->endpoint[0] && s3->is_named)))
        return false;
    pthread_mutex_lock(&s3->lock);
    if (to->region[0])
        snprintf(s3->region, sizeof s3->region, "%s", to->region);
    if (to->endpoint[0] && s3->is_named) {
        free(s3->endpoint);
        s3->endpoint = str_dup(str_of(to->endpoint));
    }
    char *base = base_url(c->job.store, s3, &ignored);
    if (base) {
        free(s3->base);
        s3->base = base;
    }
    pthread_mutex_unlock(&s3->lock);
    s3_of(c)->moved = true;
    return true;
}

static bool is_expired(struct str code)
{
    return str_eq(code, STR("ExpiredToken")) || str_eq(code, STR("TokenRefreshRequired"));
}

/* KMS and some stores ask for patience under a 400. */
static bool asks_for_less(struct str code)
{
    return str_eq(code, STR("SlowDown")) || str_ends(code, STR("ThrottlingException")) ||
           str_ends(code, STR("RequestLimitExceeded")) || str_eq(code, STR("Throttling"));
}

/* Codes that call passing what the status does not. */
static int passing(struct call *c, int code, const struct status_words *w)
{
    if (asks_for_less(w->code)) {
        c->job.reply.may_retry = c->job.reply.slow_down = true;
        c->err.code = ERR_AGAIN;
        return err_advise(&c->err, 1429, "lower the concurrency");
    }
    if (str_eq(w->code, STR("RequestTimeout"))) {
        c->job.reply.may_retry = true;
        c->err.code = ERR_TIMEOUT;
        return err_advise(&c->err, 1408, "try again");
    }
    if (is_expired(w->code)) {
        c->err.code = ERR_DENIED;
        return err_advise(&c->err, 1401, "renew the credentials from %s", creds_source_name(c->creds));
    }
    c->job.reply.may_retry |= str_eq(w->code, STR("InternalError"));
    return code;
}

/* Codes that say more than their status does. */
static int refine(struct call *c, int code, const struct status_words *w)
{
    struct store *s = c->job.store;
    if (str_eq(w->code, STR("NoSuchBucket"))) {
        err_set(&c->err, ERR_NOT_FOUND, "404 NoSuchBucket: there is no bucket '%s'", s->bucket);
        return err_advise(&c->err, 1405, "check the bucket's name, the endpoint and the account");
    }
    if (str_eq(w->code, STR("SignatureDoesNotMatch")) || str_eq(w->code, STR("InvalidAccessKeyId"))) {
        err_set(&c->err, ERR_DENIED, "%d %.*s: the store does not accept the key from %s", w->status, STR_FMT(w->code),
                creds_source_name(c->creds));
        return err_advise(&c->err, 1401, "check the access key and its secret, and that they are for this endpoint");
    }
    if (str_eq(w->code, STR("BadDigest")) || str_eq(w->code, STR("XAmzContentChecksumMismatch"))) {
        err_set(&c->err, ERR_CORRUPT, "%d %.*s: the store got other bytes than were sent", w->status, STR_FMT(w->code));
        return err_advise(&c->err, 1423,
                          "the file was changed while it was read, or the network is faulty; send it again");
    }
    if (str_eq(w->code, STR("InvalidPart"))) {
        err_set(&c->err, ERR_NOT_FOUND, "%d InvalidPart: the store does not have a part that it confirmed", w->status);
        return err_advise(&c->err, 1404, "begin it again");
    }
    if (w->status == 409 && !str_eq(w->code, STR("OperationAborted")) &&
        !str_eq(w->code, STR("ConditionalRequestConflict"))) {
        /* Servers over a file system: a key that is a folder of another one, or the other way round. */
        c->job.reply.may_retry = false;
        err_set(&c->err, ERR_INVALID, "409 %.*s: %.*s", STR_FMT(w->code), STR_FMT(str_sub(w->message, 0, 200)));
        return err_advise(&c->err, 1400, "this store cannot hold such a key beside the others; choose another name");
    }
    return passing(c, code, w);
}

/* Nobody's rights are in question, and no other credentials would help. */
static int archived(struct call *c, int status)
{
    err_set(&c->err, ERR_UNSUPPORTED,
            "%d InvalidObjectState: the object is archived (Glacier) and cannot be read as it is", status);
    return err_advise(&c->err, 1424, "restore it first (aws s3api restore-object), or exclude it");
}

void s3_refused(struct call *c, int status)
{
    static const struct xml_answer nothing;
    const struct xml_answer *a = &nothing;
    struct err ignored;
    if (c->got.len && parse(c, &a, &ignored) < 0)
        a = &nothing;
    if (str_eq(a->code, STR("InvalidObjectState"))) {
        call_end(c, archived(c, status));
        return;
    }
    struct redirect place;
    told_place(c, status, a, &place);
    if (move_to(c, &place)) {
        call_go(c, c->steps);
        return;
    }
    struct status_words w = call_words(c, status, a->code, a->message);
    w.right = s3_of(c)->right;
    int code = refine(c, call_status(c, &w), &w);
    if (place.region[0] && strcmp(place.region, s3_of(c)->region) != 0) {
        err_set(&c->err, ERR_INVALID, "%d: the bucket is in region '%s', not '%s'", status, place.region,
                s3_of(c)->region);
        code = err_advise(&c->err, 1301, "give that region");
    }
    if (is_expired(a->code))
        call_refused(c, true);
    call_end(c, code);
}

/* ---- dispatch ---------------------------------------------------------------------------------------------------- */

static void s3_start(struct store_job *job)
{
    static const struct {
        const struct call_steps *steps;
        const char *right;
    } ops[JOB_OPS] = {
        [JOB_GET] = {&s3_get_steps, "s3:GetObject"},
        [JOB_HEAD] = {&s3_head_steps, "s3:GetObject (or s3:ListBucket, if there is no such object)"},
        [JOB_LIST] = {&s3_list_steps, "s3:ListBucket"},
        [JOB_PUT] = {&s3_put_steps, "s3:PutObject"},
        [JOB_PROBE] = {&s3_probe_steps, "s3:PutObject"},
        [JOB_BEGIN] = {&s3_begin_steps, "s3:PutObject"},
        [JOB_PART] = {&s3_part_steps, "s3:PutObject"},
        [JOB_COMPLETE] = {&s3_complete_steps, "s3:PutObject"},
        [JOB_ABORT] = {&s3_abort_steps, "s3:AbortMultipartUpload"},
        [JOB_SWEEP] = {&s3_sweep_steps, "s3:ListBucketMultipartUploads and s3:AbortMultipartUpload"},
        [JOB_DELETE] = {&s3_delete_steps, "s3:DeleteObject"},
    };
    struct s3_job *j = container_of(job, struct s3_job, call.job);
    struct s3 *s3 = job->store->self;
    j->right = ops[job->op].right;
    page_init(&j->page);
    j->bare = false;
    call_init(&j->call, s3->creds);
    const struct call_steps *look = s3_look_first(&j->call);
    call_go(&j->call, look ? look : ops[job->op].steps);
}

static void s3_release(struct store_job *job)
{
    struct s3_job *j = container_of(job, struct s3_job, call.job);
    xml_free(j->xml);
    j->xml = NULL;
    page_done(&j->page);
    call_release(job);
}

const struct backend backend_s3 = {
    .scheme = "s3",
    .job_size = sizeof(struct s3_job),
    .upload_digest = HASH_CRC64NVME,
    .open = s3_open,
    .close = s3_close,
    .start = s3_start,
    .stop = call_stop,
    .resume = call_resume,
    .release = s3_release,
    .wants_probe = s3_wants_probe,
    .honours = s3_honours,
};
