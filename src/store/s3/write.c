/* SPDX-License-Identifier: Apache-2.0 */
#include "s3.h"
#include "util/encode.h"
#include <inttypes.h>
#include <stdio.h>

/* A page has a thousand uploads; a hundred thousand of one key do not occur. */
enum { SWEEP_ROUNDS_MAX = 100 };

/* ---- checksums and signatures of the body ------------------------------------------------------------------------ */

static void add_checksum(struct store_call *c, const struct digest *d)
{
    const char *header = s3_checksum_header((enum hash_kind)d->kind);
    auto_sbuf text = SBUF(64);
    if (header || d->kind == HASH_MD5) {
        digest_add_base64(d, &text);
        call_header(c, header ? header : "content-md5", sbuf_str(&text));
    }
}

/* SHA-256 of the job's body; the body is then read again from the start. */
static int hash_body(const struct store_body *b, char *hex, struct err *err)
{
    char chunk[64 << 10];
    struct hash h;
    struct digest d;
    auto_sbuf text = SBUF(64);
    hash_init(&h);
    hash_begin(&h, HASH_SHA256);
    ssize_t n = 0;
    for (uint64_t at = 0; at < b->len; at += (uint64_t)n) {
        n = b->read(b->ctx, chunk, min_u64(sizeof chunk, b->len - at), at);
        if (n <= 0)
            break;
        hash_update(&h, chunk, (size_t)n);
    }
    hash_end(&h, &d);
    hash_done(&h);
    if (n < 0 || (n == 0 && b->len > 0))
        return err_set(err, ERR_CANCELLED, "given up by the writer");
    digest_add_hex(&d, &text);
    memcpy(hex, text.ptr, 65);
    return 0;
}

/* TLS or a checksum in a signed header protects the body; without both, hash it first. */
static void sign_body(struct store_call *c)
{
    const struct s3 *s3 = c->job.store->self;
    char hex[65];
    if (s3->tls || c->job.args.body.digest.kind != HASH_NONE || c->identity->anonymous)
        s3_sign(c, STR(SIGV4_UNSIGNED));
    else if (hash_body(&c->job.args.body, hex, &c->err) == 0)
        s3_sign(c, (struct str){hex, 64});
}

static void add_object_headers(struct store_call *c)
{
    const struct job_args *a = &c->job.args;
    call_header(c, "content-type", a->write.content_type.len ? a->write.content_type : STR("application/octet-stream"));
    if (a->write.storage_class.len)
        call_header(c, "x-amz-storage-class", a->write.storage_class);
    if (a->write.idempotency_token.len)
        call_header(c, S3_META_UPLOAD_ID, a->write.idempotency_token);
    if (a->write.owner.len)
        call_header(c, S3_META_OWNER, a->write.owner);
}

/* "null" is the object of a bucket without versioning. */
static void keep_version(struct store_call *c)
{
    struct str version = call_answer_header(c, "x-amz-version-id");
    if (!str_eq(version, STR("null")))
        c->job.reply.version = call_keep(c, version);
}

/* ---- PUT --------------------------------------------------------------------------------------------------------- */

static void begin_put(struct store_call *c)
{
    s3_begin(c, "PUT", c->job.args.write.key, STR_NULL);
    c->sends_body = true;
    add_object_headers(c);
    add_checksum(c, &c->job.args.body.digest);
}

static void build_put(struct store_call *c)
{
    begin_put(c);
    s3_add_condition(c);
    sign_body(c);
}

static void answered_put(struct store_call *c, int status)
{
    if (s3_condition_failed(c, status))
        return;
    if (!c->success) {
        s3_refused(c, status);
    } else {
        s3_describe(c, true);
        keep_version(c);
        c->job.reply.object.size_bytes = c->job.args.body.len;
        s3_written(c);
    }
}

const struct call_steps s3_put_steps = {build_put, NULL, NULL, answered_put};

/* ---- PROBE: an own object again, under conditions that do not hold ----------------------------------------------- */

static void build_probe(struct store_call *c, const char *header, const char *value)
{
    begin_put(c);
    call_header(c, header, str_of(value));
    sign_body(c);
}

static void build_probe_absent(struct store_call *c)
{
    build_probe(c, "if-none-match", "*");
}

/* An ETag that no object has. */
static void build_probe_same(struct store_call *c)
{
    build_probe(c, "if-match", "\"00000000000000000000000000000000\"");
}

/* A request that came too early is sent again: without an answer, a HEAD precedes each write of the run. Other refusals
 * prove nothing. */
static void probe_ended(struct store_call *c, int status)
{
    if (call_status_slows_down(status)) {
        s3_refused(c, status);
        return;
    }
    c->job.reply.rewritten = c->success;
    call_end(c, 0);
}

static void answered_probe_same(struct store_call *c, int status)
{
    struct s3 *s3 = c->job.store->self;
    if (status == 412)
        atomic_store(&s3->known[false][true], S3_HONOURED);
    else if (c->success)
        atomic_store(&s3->known[false][true], S3_IGNORED);
    probe_ended(c, status);
}

static const struct call_steps probe_same_steps = {build_probe_same, NULL, NULL, answered_probe_same};

static void answered_probe_absent(struct store_call *c, int status)
{
    struct s3 *s3 = c->job.store->self;
    if (status == 412) {
        atomic_store(&s3->known[false][false], S3_HONOURED);
        call_go(c, &probe_same_steps);
        return;
    }
    if (c->success)
        atomic_store(&s3->known[false][false], S3_IGNORED);
    probe_ended(c, status);
}

const struct call_steps s3_probe_steps = {build_probe_absent, NULL, NULL, answered_probe_absent};

/* ---- multipart --------------------------------------------------------------------------------------------------- */

static void build_begin(struct store_call *c)
{
    s3_begin(c, "POST", c->job.args.write.key, STR("uploads="));
    add_object_headers(c);
    if (hash_combines(c->job.args.write.digest_kind)) {
        static const char *const names[] = {
            [HASH_CRC32] = "CRC32", [HASH_CRC32C] = "CRC32C", [HASH_CRC64NVME] = "CRC64NVME"};
        call_header(c, "x-amz-checksum-algorithm", str_of(names[c->job.args.write.digest_kind]));
        call_header(c, "x-amz-checksum-type", STR("FULL_OBJECT"));
    }
    char payload[65];
    s3_sign(c, s3_payload(c, payload));
}

static void answered_begin(struct store_call *c, int status)
{
    const struct s3_reply *a;
    if (!c->success) {
        s3_refused(c, status);
    } else if (s3_parse(c, S3_BEGUN, &a)) {
        c->job.reply.upload_id = call_keep(c, a->upload_id);
        call_end(c, c->job.reply.upload_id.len ? 0
                                               : err_fail(&c->err, ERR_CORRUPT, CIS_REPLY_INVALID,
                                                          "the reply to CreateMultipartUpload has no usable UploadId"));
    }
}

const struct call_steps s3_begin_steps = {build_begin, NULL, NULL, answered_begin};

static void begin_with_id(struct store_call *c, const char *method, unsigned number)
{
    auto_sbuf q = SBUF(8192);
    if (number)
        sbuf_addf(&q, "partNumber=%u", number);
    percent_encode_param("uploadId", c->job.args.write.upload_id, &q);
    s3_begin(c, method, c->job.args.write.key, sbuf_str(&q));
}

static void build_part(struct store_call *c)
{
    begin_with_id(c, "PUT", c->job.args.number);
    c->sends_body = true;
    add_checksum(c, &c->job.args.body.digest);
    sign_body(c);
}

static void answered_part(struct store_call *c, int status)
{
    if (!c->success) {
        s3_refused(c, status);
        return;
    }
    s3_describe(c, true);
    c->job.reply.object.size_bytes = c->job.args.body.len;
    call_end(c, 0);
}

const struct call_steps s3_part_steps = {build_part, NULL, NULL, answered_part};

static void add_part(struct sbuf *b, const struct store_part *p, enum hash_kind kind)
{
    static const char *const names[] = {[HASH_CRC32] = "ChecksumCRC32",
                                        [HASH_CRC32C] = "ChecksumCRC32C",
                                        [HASH_CRC64NVME] = "ChecksumCRC64NVME",
                                        [HASH_SHA256] = NULL};
    sbuf_addf(b, "<Part><PartNumber>%u</PartNumber><ETag>", p->number);
    for (size_t i = 0; i < p->etag.len; i++)
        if (p->etag.ptr[i] == '"')
            sbuf_adds(b, "&quot;");
        else if (p->etag.ptr[i] != '<' && p->etag.ptr[i] != '&')
            sbuf_addc(b, p->etag.ptr[i]);
    sbuf_adds(b, "</ETag>");
    if (kind != HASH_NONE && p->digest.kind == kind && names[kind]) {
        sbuf_addf(b, "<%s>", names[kind]);
        digest_add_base64(&p->digest, b);
        sbuf_addf(b, "</%s>", names[kind]);
    }
    sbuf_adds(b, "</Part>");
}

static void build_complete(struct store_call *c)
{
    const struct job_args *a = &c->job.args;
    char size[24], payload[65];
    uint64_t sum = 0;
    begin_with_id(c, "POST", 0);
    sbuf_adds(&c->sent, "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (size_t i = 0; i < a->parts.count; i++) {
        add_part(&c->sent, &a->parts.list[i], a->write.digest_kind);
        sum += a->parts.list[i].size_bytes;
    }
    sbuf_adds(&c->sent, "</CompleteMultipartUpload>");
    call_header(c, "content-type", STR("application/xml"));
    s3_add_condition(c);
    if (hash_combines(a->parts.whole.kind)) {
        add_checksum(c, &a->parts.whole);
        call_header(c, "x-amz-checksum-type", STR("FULL_OBJECT"));
        int n = snprintf(size, sizeof size, "%" PRIu64, sum);
        call_header(c, "x-amz-mp-object-size", (struct str){size, (size_t)n});
    }
    s3_sign(c, s3_payload(c, payload));
}

/* An unknown upload was completed by an attempt whose reply was lost, or was aborted. */
static void completed_before(struct store_call *c, const struct store_reply *r)
{
    bool is_other = r->code == 0 || r->status == 404;
    if (is_other && !call_is_ours(c, r))
        call_end(c, err_fail(&c->err, ERR_NOT_FOUND, CIS_OBJECT_NOT_FOUND,
                             "404 NoSuchUpload: the upload was aborted, or never begun"));
    else
        call_end_as(c, r);
}

static void describe_complete(struct store_call *c, const struct s3_reply *a)
{
    const struct job_args *args = &c->job.args;
    struct store_object *o = &c->job.reply.object;
    *o = (struct store_object){.key = args->write.key, .etag = call_keep(c, a->etag)};
    for (size_t i = 0; i < args->parts.count; i++)
        o->size_bytes += args->parts.list[i].size_bytes;
    if (a->checksum.len && !a->checksum_is_composite && str_find(a->checksum, '-') < 0 &&
        !digest_parse_base64(a->checksum_kind, a->checksum, &o->digest))
        o->digest.kind = HASH_NONE;
    s3_describe_parts(c, a->checksum_kind, a->checksum, a->checksum_is_composite, a->etag);
}

static void answered_complete(struct store_call *c, int status)
{
    const struct s3_reply *a;
    status = s3_late_status(c, status);
    if (status == 404) {
        call_head(c, completed_before);
    } else if (s3_condition_failed(c, status)) {
        return;
    } else if (!c->success) {
        s3_refused(c, status);
    } else {
        c->job.reply.may_retry = true; /* even if it is unreadable: the next reply shows the result */
        if (s3_parse(c, S3_COMPLETED, &a)) {
            describe_complete(c, a);
            s3_written(c);
        }
    }
}

const struct call_steps s3_complete_steps = {build_complete, NULL, NULL, answered_complete};

static void build_abort(struct store_call *c)
{
    begin_with_id(c, "DELETE", 0);
    s3_sign(c, STR(SIGV4_UNSIGNED));
}

/* An upload or an object that does not exist is gone, too. */
static void answered_abort(struct store_call *c, int status)
{
    if (s3_says_gone(c, status))
        call_end(c, 0);
    else
        s3_end(c, status);
}

const struct call_steps s3_abort_steps = {build_abort, NULL, NULL, answered_abort};

/* ---- DELETE, SWEEP ----------------------------------------------------------------------------------------------- */

static void build_delete(struct store_call *c)
{
    struct str version = c->job.args.version;
    auto_sbuf q = SBUF(8192);
    if (version.len)
        percent_encode_param("versionId", version, &q);
    s3_begin(c, "DELETE", c->job.args.write.key, sbuf_str(&q));
    s3_sign(c, STR(SIGV4_UNSIGNED));
}

static void answered_delete(struct store_call *c, int status)
{
    if (c->success)
        keep_version(c);
    answered_abort(c, status);
}

const struct call_steps s3_delete_steps = {build_delete, NULL, NULL, answered_delete};

static void build_uploads(struct store_call *c)
{
    auto_sbuf q = SBUF(8192);
    sbuf_adds(&q, "encoding-type=url");
    percent_encode_param("prefix", c->job.args.write.key, &q);
    sbuf_adds(&q, "&uploads=");
    s3_begin(c, "GET", STR_NULL, sbuf_str(&q));
    s3_sign(c, STR(SIGV4_UNSIGNED));
}

static const struct call_steps sweep_one_steps;

static const struct store_object *next_upload(struct s3_job *j)
{
    while (j->swept < j->page.count) {
        const struct store_object *o = &j->page.objects[j->swept++];
        if (str_eq(o->key, j->call.job.args.write.key))
            return o;
    }
    return NULL;
}

/* Uploads of the exact key sort first among those with this prefix. After a page with some of them, list from the
 * beginning: the aborted ones are gone, and so are their markers. */
static void page_swept(struct store_call *c)
{
    struct s3_job *j = s3_of(c);
    if (!s3_document_reply(j->document)->is_truncated || !j->aborted) {
        call_end(c, 0);
    } else if (++j->rounds >= SWEEP_ROUNDS_MAX) {
        call_end(
            c, err_fail(&c->err, ERR_CORRUPT, CIS_REPLY_INVALID, "the store keeps listing uploads that were aborted"));
    } else {
        call_go(c, &s3_sweep_steps);
    }
}

static void sweep_next(struct store_call *c)
{
    struct s3_job *j = s3_of(c);
    const struct store_object *o = next_upload(j);
    if (!o) {
        page_swept(c);
        return;
    }
    j->sweeping = o->upload_id;
    call_go(c, &sweep_one_steps);
}

static void answered_uploads(struct store_call *c, int status)
{
    const struct s3_reply *a;
    if (!c->success)
        s3_refused(c, status);
    else if (s3_parse(c, S3_UPLOADS, &a)) {
        s3_of(c)->swept = 0;
        s3_of(c)->aborted = false;
        sweep_next(c);
    }
}

const struct call_steps s3_sweep_steps = {build_uploads, NULL, NULL, answered_uploads};

static void build_sweep_one(struct store_call *c)
{
    auto_sbuf q = SBUF(8192);
    percent_encode_param("uploadId", s3_of(c)->sweeping, &q);
    s3_begin(c, "DELETE", c->job.args.write.key, sbuf_str(&q));
    s3_sign(c, STR(SIGV4_UNSIGNED));
}

static void answered_sweep_one(struct store_call *c, int status)
{
    s3_of(c)->aborted |= c->success;
    if (c->success || s3_says_gone(c, status))
        sweep_next(c);
    else
        s3_refused(c, status);
}

static const struct call_steps sweep_one_steps = {build_sweep_one, NULL, NULL, answered_sweep_one};
