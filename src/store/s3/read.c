/* SPDX-License-Identifier: Apache-2.0 */
#include "etag.h"
#include "s3.h"
#include "util/clock.h"
#include "util/encode.h"
#include <inttypes.h>

const char *s3_checksum_header(enum hash_kind kind)
{
    switch (kind) {
    case HASH_CRC64NVME:
        return "x-amz-checksum-crc64nvme";
    case HASH_CRC32C:
        return "x-amz-checksum-crc32c";
    case HASH_CRC32:
        return "x-amz-checksum-crc32";
    case HASH_SHA256:
        return "x-amz-checksum-sha256";
    default:
        return NULL;
    }
}

static const enum hash_kind kinds[] = {HASH_CRC64NVME, HASH_CRC32C, HASH_CRC32, HASH_SHA256};

/* "<base64>-7" and type COMPOSITE are checksums of the parts' checksums: the object's bytes cannot be compared
 * with them. */
static bool full_checksum(const struct store_call *c, struct digest *ret)
{
    if (str_eq_nocase(call_answer_header(c, "x-amz-checksum-type"), STR("COMPOSITE")))
        return false;
    for (size_t i = 0; i < countof(kinds); i++) {
        struct str text = call_answer_header(c, s3_checksum_header(kinds[i]));
        if (text.len && str_find(text, '-') < 0 && digest_parse_base64(kinds[i], text, ret))
            return true;
    }
    return false;
}

/* An ETag is the MD5 of the bytes unless it came from a multipart upload ('-'), or they are encrypted by KMS. */
static bool etag_md5(const struct store_call *c, struct str etag, struct digest *ret)
{
    struct str sse = call_answer_header(c, "x-amz-server-side-encryption");
    bool plain = sse.len == 0 || str_eq(sse, STR("AES256"));
    bool customer = call_answer_header(c, "x-amz-server-side-encryption-customer-algorithm").len > 0;
    return plain && !customer && !etag_is_weak(etag) && digest_parse_hex(HASH_MD5, etag_bare(etag), ret);
}

/* Splits "<digest>-<count>"; the count is missing if the type is COMPOSITE. */
static bool split_count(struct str text, struct str *ret_digest, unsigned *ret_count)
{
    uint64_t count = 0;
    ssize_t dash = str_find(text, '-');
    *ret_digest = dash < 0 ? text : str_sub(text, 0, (size_t)dash);
    bool good = dash < 0 || (str_to_u64(str_from(text, (size_t)dash + 1), &count, ERR_IGNORED) == 0 && count <= 10000);
    *ret_count = (unsigned)count;
    return good;
}

void s3_describe_parts(struct store_call *c, enum hash_kind kind, struct str checksum, bool is_composite,
                       struct str etag)
{
    struct store_reply *r = &c->job.reply;
    struct str digest;
    is_composite |= str_find(checksum, '-') >= 0;
    if (checksum.len && is_composite && split_count(checksum, &digest, &r->composite_parts) &&
        digest_parse_base64(kind, digest, &r->composite))
        return;
    etag = etag_unquoted(etag);
    if (str_find(etag, '-') >= 0 && split_count(etag, &digest, &r->composite_parts) &&
        digest_parse_hex(HASH_MD5, digest, &r->composite))
        return;
    r->composite = (struct digest){0};
}

static void describe_parts(struct store_call *c, struct str etag)
{
    bool is_composite = str_eq_nocase(call_answer_header(c, "x-amz-checksum-type"), STR("COMPOSITE"));
    struct str text = STR_NULL;
    size_t i = 0;
    for (; i < countof(kinds) && text.len == 0; i++)
        text = call_answer_header(c, s3_checksum_header(kinds[i]));
    s3_describe_parts(c, text.len ? kinds[i - 1] : HASH_NONE, text, is_composite, etag);
}

void s3_describe(struct store_call *c, bool whole)
{
    struct store_object *o = &c->job.reply.object;
    struct str length = call_answer_header(c, "content-length");
    *o = (struct store_object){.key = c->job.args.write.key, .etag = call_keep(c, call_answer_header(c, "etag"))};
    if (whole && length.len && str_to_u64(length, &o->size_bytes, ERR_IGNORED) < 0)
        o->size_bytes = 0;
    if (!time_parse_http(call_answer_header(c, "last-modified"), &o->mtime_ns))
        o->mtime_ns = 0;
    if (whole && !full_checksum(c, &o->digest) && !etag_md5(c, o->etag, &o->digest))
        o->digest.kind = HASH_NONE;
    if (whole)
        describe_parts(c, o->etag);
}

/* ---- GET --------------------------------------------------------------------------------------------------------- */

static void build_get(struct store_call *c)
{
    const struct job_args *a = &c->job.args;
    auto_sbuf quoted = SBUF(4096);
    s3_begin(c, "GET", a->write.key, STR_NULL);
    if (call_is_ranged(c))
        call_header_range(c);
    if (a->object.etag.len && !etag_is_weak(a->object.etag)) { /* If-Match never fits a weak one */
        sbuf_addf(&quoted, "\"%.*s\"", STR_FMT(etag_bare(a->object.etag)));
        call_header(c, "if-match", sbuf_str(&quoted));
    }
    call_header(c, "x-amz-checksum-mode", STR("ENABLED"));
    s3_sign(c, STR(SIGV4_UNSIGNED));
}

/* The object was replaced: the error names both states. */
static int changed(struct store_call *c, struct str now)
{
    struct str then = c->job.args.object.etag;
    if (now.len == 0)
        now = STR("another one");
    err_set(&c->err, ERR_CHANGED, "ETag %.*s became %.*s after it was listed", STR_FMT(then), STR_FMT(now));
    return store_object_outdated(&c->err);
}

/* "bytes 0-99/1000" must be the requested range; the size may be "*": the ETag detects a changed object. */
static int check_range(const struct store_call *c, uint64_t *ret_size, struct err *err)
{
    const struct job_args *a = &c->job.args;
    struct str text = call_answer_header(c, "content-range"), rest = str_from(text, 6), span, first;
    uint64_t from, to;
    if (!str_eq_nocase(str_sub(text, 0, 6), STR("bytes ")))
        return err_set(err, ERR_CORRUPT, "a range was requested, and the reply does not name its range");
    *ret_size = a->object.size_bytes;
    bool ok = str_split(&rest, '/', &span) && str_split(&span, '-', &first) &&
              str_to_u64(first, &from, ERR_IGNORED) == 0 && str_to_u64(span, &to, ERR_IGNORED) == 0 &&
              (str_eq(rest, STR("*")) || str_to_u64(rest, ret_size, ERR_IGNORED) == 0);
    if (!ok || from != a->offset || to != a->offset + a->len - 1)
        return err_set(err, ERR_CORRUPT, "bytes %" PRIu64 " to %" PRIu64 " were requested, but the reply has '%.*s'",
                       a->offset, a->offset + a->len - 1, STR_FMT(text));
    return 0;
}

static int check_length(struct store_call *c, int status, struct err *err)
{
    const struct job_args *a = &c->job.args;
    struct store_object *o = &c->job.reply.object;
    int r = 0;
    if (status == 206)
        r = check_range(c, &o->size_bytes, err);
    else if (call_is_ranged(c))
        r = err_set(err, ERR_CORRUPT, "a range was requested, but the reply has the whole object");
    if (r < 0)
        return err_advise(err, CIS_REPLY_INVALID);
    /* A proxy may send the body in chunks: its length is then checked at the end. */
    bool is_told = status == 206 || call_answer_header(c, "content-length").len > 0;
    if (is_told && a->object.size_bytes && o->size_bytes != a->object.size_bytes) {
        /* A different ETag was refused before. A reply without one may be a proxy's page. */
        if (a->object.etag.len)
            return err_fail(err, ERR_CORRUPT, CIS_REPLY_INVALID,
                            "the reply has %" PRIu64 " bytes, and the object of that ETag has %" PRIu64, o->size_bytes,
                            a->object.size_bytes);
        err_set(err, ERR_CHANGED, "it had %" PRIu64 " bytes when it was listed and has %" PRIu64 " now",
                a->object.size_bytes, o->size_bytes);
        return store_object_outdated(err);
    }
    return 0;
}

static int head_get(struct store_call *c)
{
    const struct job_args *a = &c->job.args;
    int status = web_status(c->web);
    s3_describe(c, status == 200);
    struct str etag = c->job.reply.object.etag;
    if (a->object.etag.len && etag.len && !etag_is_same(a->object.etag, etag)) /* a store that ignores If-Match */
        return changed(c, etag);
    int r = check_length(c, status, &c->err);
    if (r == 0)
        job_answered(&c->job);
    return r;
}

static void answered_get(struct store_call *c, int status)
{
    if (status == 412) {
        call_end(c, changed(c, call_answer_header(c, "etag")));
    } else if (!c->success) {
        s3_refused(c, status);
    } else {
        call_end(c, call_check_whole(c));
    }
}

const struct call_steps s3_get_steps = {build_get, head_get, call_give, answered_get};

/* ---- HEAD -------------------------------------------------------------------------------------------------------- */

static void build_head(struct store_call *c)
{
    s3_begin(c, "HEAD", c->job.args.write.key, STR_NULL);
    call_header(c, "x-amz-checksum-mode", STR("ENABLED"));
    s3_sign(c, STR(SIGV4_UNSIGNED));
}

static int head_head(struct store_call *c)
{
    s3_describe(c, true);
    c->job.reply.owner = call_keep(c, call_answer_header(c, S3_META_OWNER));
    c->job.reply.writer = call_keep(c, call_answer_header(c, S3_META_UPLOAD_ID));
    return 0;
}

const struct call_steps s3_head_steps = {build_head, head_head, NULL, s3_end};

/* ---- LIST -------------------------------------------------------------------------------------------------------- */

static void build_list(struct store_call *c)
{
    const struct store_page *p = &c->job.args.page;
    auto_sbuf q = SBUF(32 << 10);
    if (p->token.len)
        percent_encode_param("continuation-token", p->token, &q);
    if (p->delimited)
        percent_encode_param("delimiter", STR("/"), &q);
    percent_encode_param("encoding-type", STR("url"), &q);
    percent_encode_param("list-type", STR("2"), &q);
    if (p->keys_max) {
        sbuf_adds(&q, "&max-keys=");
        sbuf_add_u64(&q, p->keys_max);
    }
    if (p->prefix.len)
        percent_encode_param("prefix", p->prefix, &q);
    if (p->start_after.len && !p->token.len)
        percent_encode_param("start-after", p->start_after, &q);
    s3_begin(c, "GET", STR_NULL, sbuf_str(&q));
    s3_sign(c, STR(SIGV4_UNSIGNED));
}

static void answered_list(struct store_call *c, int status)
{
    struct s3_job *j = s3_of(c);
    const struct s3_reply *a;
    if (!c->success) {
        s3_refused(c, status);
        return;
    }
    if (!s3_parse(c, S3_OBJECTS, &a))
        return;
    if (a->is_truncated && a->next_token.len == 0) {
        call_end(c, err_fail(&c->err, ERR_CORRUPT, CIS_REPLY_INVALID,
                             "the reply says that more keys follow, and has no token for them"));
        return;
    }
    if (c->job.args.page.delimited) /* they follow the objects in the reply; a page has one order for both */
        object_page_sort(&j->page);
    c->job.objects = j->page.objects;
    c->job.object_count = j->page.count;
    c->job.next_token = a->is_truncated ? a->next_token : STR_NULL;
    call_end(c, 0);
}

const struct call_steps s3_list_steps = {build_list, NULL, NULL, answered_list};
