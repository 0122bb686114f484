/* SPDX-License-Identifier: Apache-2.0 */
#include "creds/endpoint.h"
#include "creds/trust.h"
#include "redirect.h"
#include "s3.h"
#include "util/clock.h"
#include "util/encode.h"
#include "util/hash.h"
#include "util/log.h"
#include <stdio.h>

/* ---- where the bucket is ----------------------------------------------------------------------------------------- */

/* The endpoint of the options, or AWS's for the region. The result may borrow buf of TRUST_URL_MAX. */
int s3_endpoint(const struct s3 *s3, char *buf, struct endpoint *ret, struct err *err)
{
    int r = s3->endpoint ? 0 : trust_aws_url("s3", s3->region, buf, err);
    return r < 0 ? r : endpoint_parse(str_of(s3->endpoint ? s3->endpoint : buf), ret, err);
}

/* The part of every URL before the key: "https://host/bucket" or "https://bucket.host". */
char *s3_base_url(const struct store *s, const struct s3 *s3, struct err *err)
{
    struct endpoint e;
    char aws[TRUST_URL_MAX];
    if (s3_endpoint(s3, aws, &e, err) < 0)
        return NULL;
    auto_sbuf b = SBUF(4096);
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

bool s3_is_region(struct str s)
{
    return s.len > 0 && s.len < sizeof((struct s3 *)0)->region && str_is_of(s, CHARS_LOWER CHARS_DIGITS "-");
}

/* ---- a request --------------------------------------------------------------------------------------------------- */

void s3_begin(struct store_call *c, const char *method, struct str key, struct str query)
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

struct str s3_payload(struct store_call *c, char *buf)
{
    uint8_t sum[32];
    sha256(sbuf_str(&c->sent), sum);
    return (struct str){hex_text(sum, sizeof sum, buf), 2 * sizeof sum};
}

static size_t sorted_headers(const struct store_call *c, struct str host, struct sigv4_header *ret)
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

/* The URL is scheme://host/path?query: the signature covers exactly these bytes. */
static void split_url(const struct store_call *c, struct str *ret_host, struct str *ret_path, struct str *ret_query)
{
    struct str url = sbuf_str(&c->url);
    size_t query_at = s3_of((struct store_call *)(uintptr_t)c)->query_at;
    size_t host_at = str_starts(url, STR("https://")) ? 8 : 7;
    struct str rest = str_sub(url, host_at, query_at - host_at);
    size_t slash = (size_t)str_find(rest, '/');
    *ret_host = str_sub(rest, 0, slash);
    *ret_path = str_from(rest, slash);
    *ret_query = str_from(url, query_at + 1);
}

void s3_sign(struct store_call *c, struct str payload)
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
    /* S3 always returns the stored bytes; a proxy in between must not compress them. */
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
        return; /* the caller reports it */
    split_url(c, &host, &r.path, &r.query);
    r.header_count = sorted_headers(c, host, headers);
    r.access_key_id = str_of(c->identity->access_key_id);
    r.secret = str_of(c->identity->secret);
    auto_sbuf authorization = SBUF(4096);
    sigv4_sign(&s3->cache, &r, &authorization);
    call_header(c, "authorization", sbuf_str(&authorization));
}

/* ---- an answer --------------------------------------------------------------------------------------------------- */

static int parse(struct store_call *c, const struct s3_reply **ret, struct err *err)
{
    struct s3_job *j = s3_of(c);
    if (!j->document)
        j->document = s3_document_new(&j->page);
    int r = s3_document_read(j->document, sbuf_str(&c->got), err);
    if (r < 0)
        return call_garbled(err);
    *ret = s3_document_reply(j->document);
    return 0;
}

static bool is_error(const struct s3_reply *a)
{
    return str_eq(a->root, STR("Error")) || a->code.len > 0;
}

bool s3_parse(struct store_call *c, enum s3_reply_kind want, const struct s3_reply **ret)
{
    static const char *const roots[] = {[S3_BEGUN] = "InitiateMultipartUploadResult",
                                        [S3_COMPLETED] = "CompleteMultipartUploadResult",
                                        [S3_OBJECTS] = "ListBucketResult",
                                        [S3_UPLOADS] = "ListMultipartUploadsResult"};
    const struct s3_reply *a;
    int r = parse(c, &a, &c->err);
    if (r == 0 && is_error(a)) {
        s3_refused(c, 500);
        return false;
    }
    const bool has[] = {[S3_BEGUN] = r == 0 && a->upload_id.len > 0,
                        [S3_COMPLETED] = r == 0 && a->etag.len > 0,
                        [S3_OBJECTS] = r == 0 && a->is_list,
                        [S3_UPLOADS] = r == 0 && a->is_list};
    if (r == 0 && !has[want] && !str_eq(a->root, str_of(roots[want])))
        r = err_fail(&c->err, ERR_CORRUPT, CIS_REPLY_INVALID, "'%s' was requested, but the reply is '%.*s'",
                     roots[want], STR_FMT(a->root));
    if (r < 0)
        call_end(c, r);
    else
        *ret = a;
    return r == 0;
}

int s3_late_status(struct store_call *c, int status)
{
    static const struct {
        const char *code;
        int status;
    } words[] = {{"NoSuchUpload", 404},   {"PreconditionFailed", 412}, {"ConditionalRequestConflict", 409},
                 {"InvalidPart", 400},    {"InvalidPartOrder", 400},   {"EntityTooSmall", 400},
                 {"InvalidRequest", 400}, {"BadDigest", 400},          {"AccessDenied", 403},
                 {"SlowDown", 503},       {"ServiceUnavailable", 503}};
    const struct s3_reply *a;
    if (!c->success || parse(c, &a, ERR_IGNORED) < 0 || !is_error(a))
        return status;
    c->success = false;
    for (size_t i = 0; i < countof(words); i++)
        if (str_eq(a->code, str_of(words[i].code)))
            return words[i].status;
    return 500;
}

/* A wrong region gets 301, 307 while the bucket is new, or 400 with the right region in the document (for HEAD in its
 * headers). */
static struct str named_region(const struct store_call *c, int status, const struct s3_reply *a)
{
    struct str region = call_answer_header(c, "x-amz-bucket-region");
    bool is_bare = status == 400 && str_eq(str_of(c->method), STR("HEAD"));
    if (status != 301 && status != 307 && !is_bare && !str_eq(a->code, STR("AuthorizationHeaderMalformed")) &&
        !str_eq(a->code, STR("IllegalLocationConstraintException")))
        return STR_NULL;
    return region.len ? region : a->region;
}

/* The bucket's endpoint according to the reply, if the redirect may be followed. */
static void named_place(const struct store_call *c, int status, const struct s3_reply *a, struct redirect *ret)
{
    struct s3 *s3 = c->job.store->self;
    struct str region = named_region(c, status, a), location = call_answer_header(c, "location");
    char aws[TRUST_URL_MAX];
    struct endpoint from;
    pthread_mutex_lock(&s3->lock);
    bool leads = call_is_redirect(status) && s3_endpoint(s3, aws, &from, ERR_IGNORED) == 0 &&
                 redirect_read(location, &from, str_of(s3->region), str_of(c->job.store->bucket), ret);
    pthread_mutex_unlock(&s3->lock);
    if (!leads)
        *ret = (struct redirect){0};
    /* This text becomes part of a host name: it must look like a region. */
    if (s3_is_region(region))
        snprintf(ret->region, sizeof ret->region, "%.*s", STR_FMT(region));
}

/* All later requests use this endpoint. Each job follows one redirect only, in case two servers point to each
 * other. */
static bool move_to(struct store_call *c, const struct redirect *to)
{
    struct s3 *s3 = c->job.store->self;
    bool is_other = to->region[0] && strcmp(to->region, s3_of(c)->region) != 0;
    if (s3_of(c)->moved || !(is_other || (to->endpoint[0] && s3->is_named)))
        return false;
    pthread_mutex_lock(&s3->lock);
    bool is_news = to->region[0] && strcmp(to->region, s3->region) != 0;
    if (to->region[0])
        snprintf(s3->region, sizeof s3->region, "%s", to->region);
    if (to->endpoint[0] && s3->is_named) {
        free(s3->endpoint);
        s3->endpoint = str_dup(str_of(to->endpoint));
    }
    char *base = s3_base_url(c->job.store, s3, ERR_IGNORED);
    if (base) {
        free(s3->base);
        s3->base = base;
    }
    pthread_mutex_unlock(&s3->lock);
    if (is_news)
        log_event(LOG_WARN, "bucket is in another region: requests go there; set --region to send them there at once",
                  "bucket", c->job.store->bucket, "region", to->region, NULL);
    s3_of(c)->moved = true;
    return true;
}

static bool is_expired(struct str code)
{
    return str_is_any(code, "ExpiredToken", "TokenRefreshRequired");
}

/* KMS and some stores report throttling with 400. */
static bool asks_for_less(struct str code)
{
    return str_eq(code, STR("SlowDown")) || str_ends(code, STR("ThrottlingException")) ||
           str_ends(code, STR("RequestLimitExceeded")) || str_eq(code, STR("Throttling"));
}

static bool rejects_key(struct str code)
{
    return str_is_any(code, "SignatureDoesNotMatch", "InvalidAccessKeyId", "InvalidToken", "InvalidTokenId",
                      "XAdminUserNotFound"); /* versitygw, with 404 */
}

/* Every store names the cause of a 404. A proxy does not, and its store may be restarting. Only after a GET or a DELETE
 * does a 404 mean that the object is gone; a reply to HEAD has no document. */
static bool is_of_proxy(const struct store_call *c, const struct status_words *w)
{
    return w->status == 404 && w->code.len == 0 && str_is_any(str_of(c->method), "GET", "DELETE");
}

/* Codes of temporary errors with the status of a permanent one. */
static int passing(struct store_call *c, int code, const struct status_words *w)
{
    if (is_of_proxy(c, w))
        return call_refused_by_proxy(c);
    if (asks_for_less(w->code)) {
        c->job.reply.may_retry = c->job.reply.slow_down = true;
        c->err.code = ERR_AGAIN;
        return err_advise(&c->err, CIS_STORE_THROTTLED);
    }
    if (str_eq(w->code, STR("RequestTimeout"))) {
        c->job.reply.may_retry = true;
        c->err.code = ERR_TIMEOUT;
        return err_advise(&c->err, CIS_STORE_TIMEOUT);
    }
    if (is_expired(w->code)) {
        c->err.code = ERR_DENIED;
        return err_advise(&c->err, CIS_CREDENTIALS_REJECTED);
    }
    if (str_starts(w->code, STR("KMS."))) { /* a key of the bucket that is disabled, or may not be used */
        c->err.code = ERR_DENIED;
        return err_advise(&c->err, CIS_ACCESS_DENIED);
    }
    c->job.reply.may_retry |= str_eq(w->code, STR("InternalError"));
    return code;
}

/* Codes about the storage of the object. */
static int of_storage(struct store_call *c, int code, const struct status_words *w)
{
    if (w->status == 400 && str_has(w->message, STR("using a form of Server Side Encryption")))
        return err_fail(&c->err, ERR_UNSUPPORTED, CIS_OBJECT_ENCRYPTED,
                        "400 %.*s: the object is encrypted with a customer-provided key", STR_FMT(w->code));
    if (str_ends(w->code, STR("QuotaExceeded"))) /* Ceph: 403; MinIO: 400 */
        return err_fail(&c->err, ERR_NO_SPACE, CIS_STORE_FULL, "%d %.*s: the bucket or its owner has no space left",
                        w->status, STR_FMT(w->code));
    return passing(c, code, w);
}

/* A bucket that bills the requester has no other words than for a missing permission. */
static bool may_want_payer(const struct store_call *c, const struct status_words *w)
{
    const struct s3 *s3 = c->job.store->self;
    return str_eq(w->code, STR("AccessDenied")) && err_kind_of(c->err.id) == ERR_KIND_DENIED && !s3->requester_pays &&
           !c->identity->anonymous;
}

/* A listing names no key. */
static int lost_listing(struct store_call *c, const struct status_words *w)
{
    const char *why = str_eq(w->code, STR("NoSuchKey")) ? "the server took the path of the endpoint for a bucket"
                                                        : "the endpoint is not an object store, or has no such bucket";
    return err_fail(&c->err, ERR_NOT_FOUND, CIS_BUCKET_NOT_FOUND, "404%s%.*s: %s", w->code.len ? " " : "",
                    STR_FMT(w->code), why);
}

/* Codes that are more precise than their status. */
static int refine(struct store_call *c, int code, const struct status_words *w)
{
    struct store *s = c->job.store;
    if (str_eq(w->code, STR("NoSuchBucket")))
        return err_fail(&c->err, ERR_NOT_FOUND, CIS_BUCKET_NOT_FOUND, "404 NoSuchBucket: there is no bucket '%s'",
                        s->bucket);
    if (str_eq(w->code, STR("InvalidBucketName")))
        return err_advise(&c->err, CIS_BUCKET_NOT_FOUND);
    if (str_eq(w->code, STR("InvalidStorageClass")))
        return err_fail(&c->err, ERR_INVALID, CIS_STORAGE_CLASS_UNKNOWN,
                        "%d InvalidStorageClass: the store has no storage class '%.*s'", w->status,
                        STR_FMT(c->job.args.write.storage_class));
    if (rejects_key(w->code))
        return err_fail(&c->err, ERR_DENIED, CIS_CREDENTIALS_REJECTED,
                        "%d %.*s: the store rejected the access key (%s)", w->status, STR_FMT(w->code),
                        creds_source_name(c->job.store->creds));
    if (c->job.op == STORE_OP_LIST && w->status == 404)
        return lost_listing(c, w);
    if (str_eq(w->code, STR("BadDigest")) || str_eq(w->code, STR("XAmzContentChecksumMismatch")))
        return err_fail(&c->err, ERR_CORRUPT, CIS_UPLOAD_CORRUPTED,
                        "%d %.*s: the store received other bytes than were sent", w->status, STR_FMT(w->code));
    if (str_eq(w->code, STR("InvalidPart")))
        return err_fail(&c->err, ERR_NOT_FOUND, CIS_OBJECT_NOT_FOUND,
                        "%d InvalidPart: the store does not have a part that it confirmed", w->status);
    if (w->status == 409 && !str_eq(w->code, STR("OperationAborted")) &&
        !str_eq(w->code, STR("ConditionalRequestConflict"))) {
        /* Servers on a file system: one key is a directory of another key. */
        c->job.reply.may_retry = false;
        return err_fail(&c->err, ERR_INVALID, CIS_REQUEST_REJECTED, "409 %.*s: %.*s", STR_FMT(w->code),
                        STR_FMT(str_sub(w->message, 0, 200)));
    }
    if (may_want_payer(c, w)) {
        const struct err denied = c->err;
        return err_fail(&c->err, ERR_DENIED, CIS_ACCESS_DENIED,
                        "%s; if the bucket bills the requester: --requester-pays, or requesterPays of the BucketSource",
                        denied.text);
    }
    return of_storage(c, code, w);
}

bool s3_says_gone(const struct store_call *c, int status)
{
    if (status != 404)
        return false;
    struct object_page page; /* not the job's, which a sweep still reads */
    object_page_init(&page);
    struct s3_document *x = s3_document_new(&page);
    bool is_read = s3_document_read(x, sbuf_str(&c->got), ERR_IGNORED) == 0;
    struct str code = is_read ? s3_document_reply(x)->code : STR_NULL;
    bool is_gone = code.len > 0 && !rejects_key(code);
    s3_document_free(x);
    object_page_done(&page);
    return is_gone;
}

void s3_refused(struct store_call *c, int status)
{
    static const struct s3_reply nothing;
    const struct s3_reply *a = &nothing;
    if (c->got.len && parse(c, &a, ERR_IGNORED) < 0)
        a = &nothing;
    if (str_eq(a->code, STR("InvalidObjectState"))) {
        /* More permissions or other credentials would not help. */
        call_end(c, err_fail(&c->err, ERR_UNSUPPORTED, CIS_OBJECT_ARCHIVED,
                             "%d InvalidObjectState: the object is archived (Glacier) and cannot be read as it is",
                             status));
        return;
    }
    struct redirect place;
    named_place(c, status, a, &place);
    if (move_to(c, &place)) {
        call_go(c, c->steps);
        return;
    }
    struct status_words w = call_words(c, status, a->code, a->message);
    int code = refine(c, call_status(c, &w), &w);
    if (place.region[0] && strcmp(place.region, s3_of(c)->region) != 0) {
        code = err_fail(&c->err, ERR_INVALID, CIS_WRONG_REGION, "%d: the bucket is in region '%s', not '%s'", status,
                        place.region, s3_of(c)->region);
    }
    if (is_expired(a->code))
        call_refused(c, true);
    call_end(c, code);
}

void s3_end(struct store_call *c, int status)
{
    if (c->success)
        call_end(c, 0);
    else
        s3_refused(c, status);
}
