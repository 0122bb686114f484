/* SPDX-License-Identifier: Apache-2.0 */
#include "bucket.h"
#include <assert.h>
#include <ctype.h>
#include <stdio.h>

/* ---- requests ---------------------------------------------------------------------------------------------------- */

struct str request_header(const struct request *r, const char *name)
{
    struct str rest = r->head, line, want = str_of(name);
    while (str_split(&rest, '\n', &line))
        if (line.len > want.len && line.ptr[want.len] == ':' && str_eq_nocase(str_sub(line, 0, want.len), want))
            return str_trim(str_from(line, want.len + 1));
    return STR_NULL;
}

bool url_is_plain(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("-_.~/", c));
}

size_t url_decode(struct str s, char *buf, size_t room)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len && n + 1 < room; i++) {
        unsigned code;
        char digits[3] = {0};
        if (s.ptr[i] == '%' && i + 2 < s.len && isxdigit((unsigned char)s.ptr[i + 1])) {
            memcpy(digits, s.ptr + i + 1, 2);
            sscanf(digits, "%2x", &code);
            buf[n++] = (char)code;
            i += 2;
        } else
            buf[n++] = s.ptr[i];
    }
    buf[n] = '\0';
    return n;
}

static bool find_query(const struct request *r, const char *name, struct str *ret)
{
    struct str rest = r->query, field;
    while (str_split(&rest, '&', &field)) {
        struct str key;
        if (str_split(&field, '=', &key) && str_eq(key, str_of(name))) {
            *ret = field;
            return true;
        }
    }
    return false;
}

bool request_asks(const struct request *r, const char *name)
{
    struct str ignored;
    return find_query(r, name, &ignored);
}

bool request_query(const struct request *r, const char *name, char *buf, size_t room)
{
    struct str value;
    buf[0] = '\0';
    if (!find_query(r, name, &value))
        return false;
    char plus[4096];
    size_t n = min_u64(value.len, sizeof plus);
    for (size_t i = 0; i < n; i++)
        plus[i] = value.ptr[i] == '+' ? ' ' : value.ptr[i];
    url_decode((struct str){plus, n}, buf, room);
    return true;
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

void reply_clear(struct reply *p)
{
    struct sbuf headers = p->headers, text = p->text;
    sbuf_clear(&headers);
    sbuf_clear(&text);
    *p = (struct reply){.headers = headers, .text = text};
}

void reply_add(struct reply *p, struct segment s)
{
    assert(p->segment_count < SEGMENTS_MAX);
    if (s.len == 0)
        return;
    p->segments[p->segment_count++] = s;
    p->body_len += s.len;
    p->declared_len = p->body_len;
}

void reply_text(struct reply *p, int status, const char *content_type, struct str text)
{
    p->status = status;
    p->segment_count = 0;
    p->body_len = p->declared_len = 0;
    if (content_type)
        sbuf_addf(&p->headers, "Content-Type: %s\r\n", content_type);
    if (text.ptr != p->text.ptr) {
        sbuf_clear(&p->text);
        sbuf_add(&p->text, text);
    }
    reply_add(p, (struct segment){.from = SEGMENT_TEXT, .text = p->text.ptr, .len = p->text.len});
}

void reply_cut(struct reply *p, uint64_t len)
{
    uint64_t seen = 0;
    for (unsigned i = 0; i < p->segment_count; i++) {
        struct segment *s = &p->segments[i];
        if (seen + s->len >= len) {
            s->len = len - seen;
            p->segment_count = i + (s->len > 0);
            p->body_len = len;
            return;
        }
        seen += s->len;
    }
}

static struct segment later_half(const struct segment *s, uint64_t at)
{
    struct segment half = *s;
    half.len -= at;
    if (s->from == SEGMENT_TEXT)
        half.text += at;
    else
        half.at += at;
    return half;
}

static char byte_at(const struct segment *s, uint64_t at)
{
    char c = 0;
    if (s->from == SEGMENT_TEXT)
        return s->text[at];
    if (s->from == SEGMENT_PATTERN)
        return objects_pattern()[(s->at + at) % PATTERN_BYTES];
    ssize_t n = pread(s->fd, &c, 1, (off_t)(s->at + at));
    (void)n;
    return c;
}

void reply_flip(struct reply *p, uint64_t at)
{
    static char all[256];
    uint64_t seen = 0;
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    for (unsigned i = 0; i < p->segment_count; seen += p->segments[i++].len) {
        struct segment *s = &p->segments[i];
        if (at - seen >= s->len)
            continue;
        at -= seen;
        assert(p->segment_count + 2 <= SEGMENTS_MAX);
        struct segment wrong = {.from = SEGMENT_TEXT, .text = &all[(unsigned char)~byte_at(s, at)], .len = 1};
        struct segment rest = later_half(s, at + 1);
        memmove(s + 3, s + 1, (p->segment_count - i - 1) * sizeof *s);
        s->len = at;
        s[1] = wrong;
        s[2] = rest;
        p->segment_count += 2;
        return;
    }
}

/* ---- an object's bytes ------------------------------------------------------------------------------------------- */

bool precondition_fails(const struct request *r, const struct thing *t)
{
    char asked[32], quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\"", t->etag);
    struct str match = request_header(r, "If-Match");
    if (match.ptr && !str_eq(match, str_of(quoted)) && !str_eq(match, str_of(t->etag)) && !str_eq(match, STR("*")))
        return true;
    if (request_query(r, "ifGenerationMatch", asked, sizeof asked))
        return strtoull(asked, NULL, 10) != t->generation;
    struct str by_header = request_header(r, "x-goog-if-generation-match");
    snprintf(asked, sizeof asked, "%.*s", STR_FMT(str_sub(by_header, 0, 30)));
    return by_header.ptr && strtoull(asked, NULL, 10) != t->generation;
}

/* False: not satisfiable. */
static bool range_of(const struct request *r, uint64_t size, uint64_t *from, uint64_t *len, bool *ranged)
{
    struct str range = request_header(r, "Range"), first, err_free = STR("bytes=");
    struct err ignored;
    *from = 0;
    *len = size;
    *ranged = false;
    if (!str_starts(range, err_free))
        return true;
    range = str_from(range, err_free.len);
    uint64_t last = UINT64_MAX, begin = 0;
    if (!str_split(&range, '-', &first))
        return true;
    *ranged = true;
    if (first.len == 0) {
        if (str_to_u64(range, &last, &ignored) < 0)
            return true;
        *from = size - min_u64(size, last);
        *len = size - *from;
        return *len > 0;
    }
    if (str_to_u64(first, &begin, &ignored) < 0 || (range.len && str_to_u64(range, &last, &ignored) < 0))
        return true;
    if (begin >= size || last < begin)
        return false;
    *from = begin;
    *len = min_u64(last - begin, size - begin - 1) + 1;
    return true;
}

static void add_checksums(const struct request *r, const struct thing *t, bool ranged, struct reply *p)
{
    if (r->is_gcs || request_header(r, "x-goog-hash").ptr) {
        if (t->crc32c[0])
            sbuf_addf(&p->headers, "x-goog-hash: crc32c=%s\r\n", t->crc32c);
        if (t->md5[0])
            sbuf_addf(&p->headers, "x-goog-hash: md5=%s\r\n", t->md5);
        return;
    }
    bool asked = str_eq_nocase(request_header(r, "x-amz-checksum-mode"), STR("ENABLED"));
    if (!asked || ranged)
        return;
    if (t->crc32c[0])
        sbuf_addf(&p->headers, "x-amz-checksum-crc32c: %s\r\n", t->crc32c);
    if (t->crc32[0])
        sbuf_addf(&p->headers, "x-amz-checksum-crc32: %s\r\n", t->crc32);
    if (t->crc64[0])
        sbuf_addf(&p->headers, "x-amz-checksum-crc64nvme: %s\r\n", t->crc64);
    if (t->crc32c[0] || t->crc32[0] || t->crc64[0])
        sbuf_addf(&p->headers, "x-amz-checksum-type: %s\r\n", strchr(t->crc32c, '-') ? "COMPOSITE" : "FULL_OBJECT");
}

void object_answer(const struct request *r, const struct thing *t, struct reply *p)
{
    uint64_t from, len;
    bool ranged;
    if (!range_of(r, t->size, &from, &len, &ranged)) {
        sbuf_addf(&p->headers, "Content-Range: bytes */%llu\r\n", (unsigned long long)t->size);
        reply_text(p, 416, "text/plain", STR("the range is not satisfiable"));
        return;
    }
    p->status = ranged ? 206 : 200;
    if (ranged)
        sbuf_addf(&p->headers, "Content-Range: bytes %llu-%llu/%llu\r\n", (unsigned long long)from,
                  (unsigned long long)(from + len - 1), (unsigned long long)t->size);
    sbuf_addf(&p->headers,
              "ETag: \"%s\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Type: "
              "application/octet-stream\r\nAccept-Ranges: bytes\r\n%s",
              t->etag, t->meta);
    if (r->is_gcs)
        sbuf_addf(&p->headers, "x-goog-generation: %llu\r\nx-goog-stored-content-length: %llu\r\n",
                  (unsigned long long)t->generation, (unsigned long long)t->size);
    add_checksums(r, t, ranged, p);
    if (t->synthetic)
        reply_add(p, (struct segment){.from = SEGMENT_PATTERN, .at = t->pattern_at + from, .len = len});
    else if (t->content) {
        p->content = content_hold(t->content);
        reply_add(p, (struct segment){.from = SEGMENT_TEXT, .text = p->content->bytes + from, .len = len});
    }
    p->declared_len = len;
}
