/* SPDX-License-Identifier: Apache-2.0 */
#include "bucket.h"
#include "util/encode.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

enum { UPLOADS_MAX = 4096, PARTS_MAX = 10000, PAGE_MAX = 1000 };

struct multipart {
    char id[32];
    char key[KEY_MAX_BYTES + 1];
    char meta[512];
    struct piece *parts; /* by number; size 0 and no kind: not there */
    bool used;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards uploads */
static struct multipart uploads[UPLOADS_MAX];
static unsigned upload_serial;

static void xml_add(struct sbuf *b, struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        switch (s.ptr[i]) {
        case '&':
            sbuf_adds(b, "&amp;");
            break;
        case '<':
            sbuf_adds(b, "&lt;");
            break;
        case '>':
            sbuf_adds(b, "&gt;");
            break;
        case '"':
            sbuf_adds(b, "&quot;");
            break;
        default:
            if ((unsigned char)s.ptr[i] < ' ')
                sbuf_addf(b, "&#x%x;", s.ptr[i]);
            else
                sbuf_addc(b, s.ptr[i]);
        }
}

/* As encoding-type=url wants it. */
static void key_add(struct sbuf *b, const char *key, bool encode)
{
    if (!encode) {
        xml_add(b, str_of(key));
        return;
    }
    for (const unsigned char *c = (const unsigned char *)key; *c; c++)
        if (url_is_plain((char)*c))
            sbuf_addc(b, (char)*c);
        else
            sbuf_addf(b, "%%%02X", *c);
}

static void s3_error(struct reply *p, int status, const char *code, const char *what)
{
    sbuf_clear(&p->text);
    sbuf_addf(&p->text,
              "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>%s</Message></Error>", code,
              what);
    reply_text(p, status, "application/xml", sbuf_str(&p->text));
}

static void entry_add(const struct thing *t, bool encode, struct sbuf *b)
{
    sbuf_adds(b, "<Contents><Key>");
    key_add(b, t->key, encode);
    sbuf_adds(b, "</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;");
    sbuf_adds(b, t->etag);
    sbuf_adds(b, "&quot;</ETag>");
    if (t->crc64[0] || t->crc32c[0])
        sbuf_addf(b, "<ChecksumAlgorithm>%s</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>",
                  t->crc64[0] ? "CRC64NVME" : "CRC32C");
    sbuf_adds(b, "<Size>");
    sbuf_add_u64(b, t->size);
    sbuf_adds(b, "</Size><StorageClass>STANDARD</StorageClass></Contents>");
}

/* Keys of synthetic objects are the same encoded or not: objects_add() sees to it. */
void entry_s3(const struct thing *t, struct sbuf *b)
{
    entry_add(t, false, b);
}

/* ---- listing ----------------------------------------------------------------------------------------------------- */

struct page {
    char prefix[KEY_MAX_BYTES + 1], delimiter[8], after[KEY_MAX_BYTES + 1];
    uint64_t max;
    bool encode; /* encoding-type=url */
    bool old;    /* of version 1: `marker` instead of a token */
};

static void page_parse(const struct request *r, struct page *g)
{
    char text[2 * KEY_MAX_BYTES + 1];
    auto_sbuf token;
    sbuf_init(&token, KEY_MAX_BYTES);
    request_query(r, "prefix", g->prefix, sizeof g->prefix);
    request_query(r, "delimiter", g->delimiter, sizeof g->delimiter);
    g->old = !request_asks(r, "list-type");
    request_query(r, g->old ? "marker" : "start-after", g->after, sizeof g->after);
    if (!g->old && request_query(r, "continuation-token", text, sizeof text) && base64_parse(str_of(text), &token) &&
        token.ptr)
        snprintf(g->after, sizeof g->after, "%s", token.ptr);
    g->max = request_query(r, "max-keys", text, sizeof text) ? strtoull(text, NULL, 10) : PAGE_MAX;
    g->max = min_u64(g->max, PAGE_MAX);
    g->encode = request_query(r, "encoding-type", text, sizeof text);
}

static void page_begin(const struct page *g, bool truncated, uint64_t count, struct str last, struct sbuf *b)
{
    sbuf_addf(b,
              "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
              "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>%s</Name><Prefix>",
              bucket_name);
    key_add(b, g->prefix, g->encode);
    sbuf_addf(b, "</Prefix><KeyCount>%" PRIu64 "</KeyCount><MaxKeys>%" PRIu64 "</MaxKeys><IsTruncated>%s</IsTruncated>",
              count, g->max, truncated ? "true" : "false");
    if (g->encode)
        sbuf_adds(b, "<EncodingType>url</EncodingType>");
    if (truncated && g->old) {
        sbuf_adds(b, "<NextMarker>");
        key_add(b, last.ptr, g->encode);
        sbuf_adds(b, "</NextMarker>");
    } else if (truncated) {
        sbuf_adds(b, "<NextContinuationToken>");
        base64url_add(b, last.ptr, last.len);
        sbuf_adds(b, "</NextContinuationToken>");
    }
}

/* All of the page is synthetic, in one group, and rendered already: three segments, nothing formatted. */
static bool page_fast(const struct page *g, struct reply *p)
{
    struct cursor from;
    struct objects_page page;
    char past[KEY_MAX_BYTES + 8];
    bool after = strcmp(g->after, g->prefix) >= 0 && g->after[0];
    objects_seek(&from, str_of(after ? g->after : g->prefix), after);
    snprintf(past, sizeof past, "%s\xff\xff", g->prefix);
    if (g->delimiter[0] || !objects_page(S3, &from, past, g->max, &page))
        return false;
    page_begin(g, page.truncated, page.count, str_of(page.last), &p->text);
    reply_text(p, 200, "application/xml", sbuf_str(&p->text));
    reply_add(p, (struct segment){.from = SEGMENT_FILE, .fd = page.fd, .at = page.at, .len = page.len});
    reply_add(p, (struct segment){.from = SEGMENT_TEXT, .text = "</ListBucketResult>", .len = 19});
    return true;
}

/* The common prefix of `key` below the page's prefix, or 0. */
static size_t folder_len(const struct page *g, const char *key)
{
    size_t skip = strlen(g->prefix);
    const char *at = g->delimiter[0] ? strstr(key + skip, g->delimiter) : NULL;
    return at ? (size_t)(at - key) + strlen(g->delimiter) : 0;
}

static void page_slow(const struct page *g, struct reply *p)
{
    auto_sbuf entries;
    struct cursor c;
    struct thing t;
    char last[KEY_MAX_BYTES + 8] = "", skip[KEY_MAX_BYTES + 8];
    uint64_t count = 0;
    bool truncated = false;
    sbuf_init(&entries, 64 << 20);
    bool after = g->after[0] && strcmp(g->after, g->prefix) >= 0;
    size_t folder = after ? folder_len(g, g->after) : 0;
    snprintf(skip, sizeof skip, "%s", after ? g->after : g->prefix);
    if (after && folder && folder == strlen(g->after)) /* continues behind a whole directory */
        snprintf(skip, sizeof skip, "%s\xff\xff", g->after);
    objects_seek(&c, str_of(skip), after);
    while (objects_next(&c, &t)) {
        if (strncmp(t.key, g->prefix, strlen(g->prefix)) != 0)
            break;
        if (count == g->max) {
            truncated = true;
            break;
        }
        count++;
        folder = folder_len(g, t.key);
        if (!folder) {
            snprintf(last, sizeof last, "%s", t.key);
            entry_add(&t, g->encode, &entries);
            continue;
        }
        snprintf(last, sizeof last, "%.*s", (int)folder, t.key);
        sbuf_adds(&entries, "<CommonPrefixes><Prefix>");
        key_add(&entries, last, g->encode);
        sbuf_adds(&entries, "</Prefix></CommonPrefixes>");
        snprintf(skip, sizeof skip, "%.*s\xff\xff", (int)folder, t.key);
        objects_seek(&c, str_of(skip), false);
    }
    page_begin(g, truncated, count, str_of(last), &p->text);
    sbuf_add(&p->text, sbuf_str(&entries));
    sbuf_adds(&p->text, "</ListBucketResult>");
    reply_text(p, 200, "application/xml", sbuf_str(&p->text));
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static bool digest_disagrees(const struct request *r, const char *header, const struct digest *have)
{
    struct str told_by_client = request_header(r, header);
    auto_sbuf b;
    sbuf_init(&b, 100);
    digest_add_base64(have, &b);
    return told_by_client.ptr && !str_eq(told_by_client, sbuf_str(&b));
}

static bool body_is_bad(const struct request *r, const struct piece *body)
{
    return digest_disagrees(r, "x-amz-checksum-crc32c", &body->crc32c) ||
           digest_disagrees(r, "x-amz-checksum-crc64nvme", &body->crc64) ||
           (body->md5.kind && digest_disagrees(r, "Content-MD5", &body->md5));
}

static void meta_of(const struct request *r, char *buf, size_t room)
{
    struct str rest = r->head, line;
    size_t used = 0;
    buf[0] = '\0';
    while (str_split(&rest, '\n', &line)) {
        bool ours = str_eq_nocase(str_sub(line, 0, 11), STR("x-amz-meta-")) ||
                    str_eq_nocase(str_sub(line, 0, 12), STR("x-goog-meta-"));
        if (ours && used + line.len + 3 < room)
            used += (size_t)snprintf(buf + used, room - used, "%.*s\r\n", STR_FMT(str_trim(line)));
    }
}

static void add_checksums(const char *crc64, const char *crc32c, struct reply *p)
{
    if (told.crc64 && crc64[0])
        sbuf_addf(&p->headers, "x-amz-checksum-crc64nvme: %s\r\n", crc64);
    if (told.crc32c)
        sbuf_addf(&p->headers, "x-amz-checksum-crc32c: %s\r\n", crc32c);
}

static void confirm(const struct thing *t, struct reply *p)
{
    sbuf_addf(&p->headers, "ETag: \"%s\"\r\nx-goog-generation: %" PRIu64 "\r\n", t->etag, t->generation);
    add_checksums(t->crc64, t->crc32c, p);
    if (told.crc64 || told.crc32c)
        sbuf_addf(&p->headers, "x-amz-checksum-type: %s\r\n", strchr(t->crc32c, '-') ? "COMPOSITE" : "FULL_OBJECT");
}

static bool condition_fails(const struct request *r)
{
    auto_thing t = {.content = NULL};
    bool is_put = str_eq(r->method, STR("PUT")), is_there = objects_find(str_of(r->key), &t);
    if (is_put ? heedless_put : heedless_complete)
        return false;
    if (str_eq(request_header(r, "If-None-Match"), STR("*")) ||
        str_eq(request_header(r, "x-goog-if-generation-match"), STR("0")))
        return is_there;
    return request_header(r, "If-Match").ptr && (!is_there || precondition_fails(r, &t));
}

static void put_object(const struct request *r, struct piece *body, struct reply *p)
{
    struct thing t;
    char meta[512];
    if (condition_fails(r)) {
        s3_error(p, 412, "PreconditionFailed", "the object exists already");
        return;
    }
    if (body_is_bad(r, body)) {
        s3_error(p, 400, "BadDigest", "the checksum is not that of the body");
        return;
    }
    meta_of(r, meta, sizeof meta);
    objects_put(str_of(r->key), body, 1, meta, &t);
    confirm(&t, p);
    p->status = 200;
}

static struct multipart *upload_find(const struct request *r)
{
    char id[64];
    request_query(r, "uploadId", id, sizeof id);
    for (unsigned i = 0; i < UPLOADS_MAX; i++)
        if (uploads[i].used && strcmp(uploads[i].id, id) == 0 && strcmp(uploads[i].key, r->key) == 0)
            return &uploads[i];
    return NULL;
}

static void upload_begin(const struct request *r, struct reply *p)
{
    struct multipart *u = NULL;
    for (unsigned i = 0; i < UPLOADS_MAX && !u; i++)
        u = uploads[i].used ? NULL : &uploads[i];
    if (!u) {
        s3_error(p, 503, "SlowDown", "too many uploads are open");
        return;
    }
    *u = (struct multipart){.used = true, .parts = xcalloc(PARTS_MAX + 1, sizeof *u->parts)};
    snprintf(u->id, sizeof u->id, "upload-%u", ++upload_serial);
    snprintf(u->key, sizeof u->key, "%s", r->key);
    meta_of(r, u->meta, sizeof u->meta);
    const char *root = odd_roots ? "MultipartUpload" : "InitiateMultipartUploadResult";
    sbuf_addf(&p->text, "<%s><Bucket>%s</Bucket><Key>", root, bucket_name);
    xml_add(&p->text, str_of(u->key));
    sbuf_addf(&p->text, "</Key><UploadId>%s</UploadId></%s>", u->id, root);
    reply_text(p, 200, "application/xml", sbuf_str(&p->text));
}

static void upload_part(const struct request *r, struct multipart *u, struct piece *body, struct reply *p)
{
    char number[16];
    request_query(r, "partNumber", number, sizeof number);
    unsigned long n = strtoul(number, NULL, 10);
    if (n < 1 || n > PARTS_MAX) {
        s3_error(p, 400, "InvalidArgument", "the part number is not between 1 and 10000");
        return;
    }
    if (body_is_bad(r, body)) {
        s3_error(p, 400, "BadDigest", "the checksum is not that of the body");
        return;
    }
    free(u->parts[n].content);
    u->parts[n] = *body;
    body->content = NULL;
    u->parts[n].number = (unsigned)n;
    auto_sbuf crc64, crc32c;
    sbuf_init(&crc64, 32);
    sbuf_init(&crc32c, 32);
    digest_add_base64(&body->crc64, &crc64);
    digest_add_base64(&body->crc32c, &crc32c);
    sbuf_adds(&p->headers, "ETag: \"");
    if (!told.md5)
        sbuf_addf(&p->headers, "part-%lu-", n);
    digest_add_hex(told.md5 ? &body->md5 : &body->crc32c, &p->headers);
    sbuf_adds(&p->headers, "\"\r\n");
    add_checksums(crc64.ptr, crc32c.ptr, p);
    p->status = 200;
}

static void upload_drop(struct multipart *u)
{
    for (unsigned n = 1; n <= PARTS_MAX; n++)
        free(u->parts[n].content);
    free(u->parts);
    *u = (struct multipart){0};
}

/* The parts that the body names, in its order; 0 if one of them is not there. */
static size_t parts_named(const struct multipart *u, const char *xml, struct piece *named)
{
    size_t count = 0;
    for (const char *at = xml; at && (at = strstr(at, "<PartNumber>")) != NULL; at++) {
        unsigned long n = strtoul(at + 12, NULL, 10);
        if (n < 1 || n > PARTS_MAX || u->parts[n].number != n || count == PARTS_MAX)
            return 0;
        named[count++] = u->parts[n];
    }
    return count;
}

static bool whole_disagrees(const struct request *r, const struct piece *parts, size_t count)
{
    struct digest whole = parts[0].crc64;
    for (size_t i = 1; i < count; i++)
        digest_combine(&whole, &parts[i].crc64, parts[i].size);
    return digest_disagrees(r, "x-amz-checksum-crc64nvme", &whole);
}

static void upload_complete(const struct request *r, struct multipart *u, const struct piece *body, struct reply *p)
{
    struct thing t;
    auto_mem struct piece *named = xcalloc(PARTS_MAX, sizeof *named);
    size_t count = parts_named(u, body->content, named);
    if (count == 0) {
        s3_error(p, 400, "InvalidPart", "a part that is named was not uploaded");
        return;
    }
    if (condition_fails(r)) {
        s3_error(p, 412, "PreconditionFailed", "the object exists already");
        return;
    }
    if (told.crc64 && whole_disagrees(r, named, count)) {
        s3_error(p, 400, "BadDigest", "the checksum is not that of the parts");
        return;
    }
    const char *root = odd_roots ? "CompletedUpload" : "CompleteMultipartUploadResult";
    for (size_t i = 0; i < count; i++)
        u->parts[named[i].number].content = NULL; /* the object's now */
    objects_put(str_of(r->key), named, count, u->meta, &t);
    upload_drop(u);
    confirm(&t, p);
    sbuf_addf(&p->text, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<%s><Bucket>%s</Bucket><Key>", root, bucket_name);
    xml_add(&p->text, str_of(t.key));
    sbuf_addf(&p->text, "</Key><ETag>&quot;%s&quot;</ETag>", t.etag);
    if (t.crc64[0])
        sbuf_addf(&p->text, "<ChecksumCRC64NVME>%s</ChecksumCRC64NVME><ChecksumType>FULL_OBJECT</ChecksumType>",
                  t.crc64);
    sbuf_addf(&p->text, "</%s>", root);
    reply_text(p, 200, "application/xml", sbuf_str(&p->text));
}

static int cmp_upload(const void *a, const void *b)
{
    const struct multipart *x = *(struct multipart *const *)a, *y = *(struct multipart *const *)b;
    int c = strcmp(x->key, y->key);
    return c ? c : strcmp(x->id, y->id);
}

/* The first page only: no client here continues from a marker. */
static void uploads_list(const struct request *r, struct reply *p)
{
    char prefix[KEY_MAX_BYTES + 1];
    auto_mem struct multipart **found = xcalloc(UPLOADS_MAX, sizeof(struct multipart *));
    size_t count = 0;
    request_query(r, "prefix", prefix, sizeof prefix);
    for (unsigned i = 0; i < UPLOADS_MAX; i++)
        if (uploads[i].used && strncmp(uploads[i].key, prefix, strlen(prefix)) == 0)
            found[count++] = &uploads[i];
    qsort(found, count, sizeof(struct multipart *), cmp_upload);
    sbuf_addf(&p->text, "<ListMultipartUploadsResult><IsTruncated>%s</IsTruncated>",
              count > PAGE_MAX ? "true" : "false");
    for (size_t i = 0; i < count && i < PAGE_MAX; i++) {
        sbuf_adds(&p->text, "<Upload><Key>");
        xml_add(&p->text, str_of(found[i]->key));
        sbuf_addf(&p->text, "</Key><UploadId>%s</UploadId><Initiated>2026-01-01T00:00:00.000Z</Initiated></Upload>",
                  found[i]->id);
    }
    sbuf_adds(&p->text, "</ListMultipartUploadsResult>");
    reply_text(p, 200, "application/xml", sbuf_str(&p->text));
}

/* True if the request was about a multipart upload. */
static bool multipart_answer(const struct request *r, struct piece *body, struct reply *p)
{
    bool begins = request_asks(r, "uploads"), named = request_asks(r, "uploadId");
    if (!begins && !named)
        return false;
    pthread_mutex_lock(&lock);
    struct multipart *u = named ? upload_find(r) : NULL;
    if (begins && str_eq(r->method, STR("POST")))
        upload_begin(r, p);
    else if (begins)
        uploads_list(r, p);
    else if (!u)
        s3_error(p, 404, "NoSuchUpload", "there is no such upload");
    else if (str_eq(r->method, STR("PUT")))
        upload_part(r, u, body, p);
    else if (str_eq(r->method, STR("POST")))
        upload_complete(r, u, body, p);
    else {
        upload_drop(u);
        p->status = 204;
    }
    pthread_mutex_unlock(&lock);
    return true;
}

/* ---- a request --------------------------------------------------------------------------------------------------- */

static void bucket_answer(const struct request *r, struct reply *p)
{
    struct page g;
    if (str_eq(r->method, STR("HEAD")))
        p->status = 200;
    else if (request_asks(r, "location"))
        reply_text(p, 200, "application/xml",
                   STR("<LocationConstraint xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"/>"));
    else if (!str_eq(r->method, STR("GET")))
        s3_error(p, 405, "MethodNotAllowed", "not of a bucket");
    else {
        page_parse(r, &g);
        if (!page_fast(&g, p))
            page_slow(&g, p);
    }
}

static bool names_checksum(const struct request *r)
{
    return request_header(r, "x-amz-checksum-algorithm").ptr || request_header(r, "x-amz-checksum-crc64nvme").ptr ||
           request_header(r, "x-amz-checksum-crc32c").ptr;
}

void s3_answer(const struct request *r, struct piece *body, struct reply *p)
{
    auto_thing t = {.content = NULL};
    bool is_write = str_eq(r->method, STR("PUT")) || str_eq(r->method, STR("POST"));
    if ((old_fashioned && names_checksum(r)) || (unconditional && is_write && request_header(r, "If-None-Match").ptr))
        s3_error(p, 501, "NotImplemented", "A header you provided implies functionality that is not implemented");
    else if (strcmp(r->bucket, bucket_name) != 0)
        s3_error(p, 404, "NoSuchBucket", "The specified bucket does not exist");
    else if (multipart_answer(r, body, p))
        return;
    else if (!r->key[0])
        bucket_answer(r, p);
    else if (str_eq(r->method, STR("PUT")))
        put_object(r, body, p);
    else if (str_eq(r->method, STR("DELETE"))) {
        objects_remove(str_of(r->key));
        p->status = 204;
    } else if (!objects_find(str_of(r->key), &t))
        s3_error(p, 404, "NoSuchKey", "The specified key does not exist.");
    else if (precondition_fails(r, &t))
        s3_error(p, 412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold");
    else
        object_answer(r, &t, p);
}
