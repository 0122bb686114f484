/* SPDX-License-Identifier: Apache-2.0 */
#include "logbook_line.h"
#include <ctype.h>
#include <inttypes.h>

enum { CRC_LEN = 8 };

static const char kinds[] = {[LINE_SENT] = 'S',  [LINE_INTENT] = 'I', [LINE_BEGUN] = 'B',  [LINE_PART] = 'P',
                             [LINE_ENDED] = 'E', [LINE_LOST] = 'L',   [LINE_VERSION] = 'V'};

static void add_crc(struct str text, struct sbuf *b)
{
    struct digest d = digest_of(HASH_CRC32C, text);
    digest_add_hex(&d, b);
}

static bool is_plain(unsigned char c)
{
    return c < 0x80 && (isalnum(c) || strchr("/._-+=:,\"", c)) && c != '\0';
}

static void add_text(struct sbuf *b, struct str s)
{
    sbuf_addc(b, ' ');
    for (size_t i = 0; i < s.len; i++) {
        if (is_plain((unsigned char)s.ptr[i])) {
            sbuf_addc(b, s.ptr[i]);
        } else {
            sbuf_addc(b, '%');
            sbuf_add_hex(b, s.ptr + i, 1);
        }
    }
}

static void add_stamp(struct sbuf *b, const struct stamp *s)
{
    sbuf_addf(b, " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRIu64, s->size_bytes, s->mtime_ns, s->ctime_ns, s->inode);
}

static void add_fields(const struct logbook_line *r, struct sbuf *b)
{
    switch (r->kind) {
    case LINE_SENT:
        add_stamp(b, &r->stamp);
        add_text(b, r->path);
        add_text(b, r->key);
        add_text(b, r->etag);
        return;
    case LINE_INTENT:
        add_stamp(b, &r->stamp);
        sbuf_addf(b, " %" PRIu64, r->part_bytes);
        add_text(b, r->token);
        add_text(b, r->path);
        add_text(b, r->key);
        return;
    case LINE_BEGUN:
        add_text(b, r->token);
        add_text(b, r->upload_id);
        return;
    case LINE_PART:
        add_text(b, r->token);
        sbuf_addf(b, " %u %" PRIu64 " %s ", r->number, r->part_bytes, hash_name(r->digest.kind));
        digest_add_hex(&r->digest, b);
        add_text(b, r->etag);
        return;
    case LINE_ENDED:
        add_text(b, r->token);
        return;
    case LINE_LOST:
        add_stamp(b, &r->stamp);
        add_text(b, r->path);
        return;
    case LINE_VERSION:
        sbuf_addf(b, " %u", r->number);
        return;
    }
}

void logbook_line_add(const struct logbook_line *r, struct sbuf *b)
{
    auto_sbuf text = SBUF(LINE_BYTES_MAX - CRC_LEN - 2);
    sbuf_addc(&text, kinds[r->kind]);
    add_fields(r, &text);
    add_crc(sbuf_str(&text), b);
    sbuf_addc(b, ' ');
    sbuf_add(b, sbuf_str(&text));
    sbuf_addc(b, '\n');
    b->overflow |= text.overflow;
}

/* ---- and back ---------------------------------------------------------------------------------------------------- */

/* Parses the rest of a line's fields. `good` becomes false at the first missing or invalid field, and stays false. */
struct fields {
    struct str rest;
    char *out; /* where the next decoded text goes */
    bool good;
};

static struct str next_field(struct fields *f)
{
    struct str field = STR_NULL;
    if (!str_split(&f->rest, ' ', &field))
        f->good = false;
    return field;
}

static struct str next_text(struct fields *f)
{
    struct str s = next_field(f);
    char *from = f->out;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] != '%') {
            *f->out++ = s.ptr[i];
            continue;
        }
        int high = i + 2 < s.len ? hex_digit(s.ptr[i + 1]) : -1;
        int low = high >= 0 ? hex_digit(s.ptr[i + 2]) : -1;
        if (low < 0) {
            f->good = false;
            break;
        }
        *f->out++ = (char)(high << 4 | low);
        i += 2;
    }
    return (struct str){from, (size_t)(f->out - from)};
}

static uint64_t next_u64(struct fields *f)
{
    uint64_t n = 0;
    f->good &= str_to_u64(next_field(f), &n, ERR_IGNORED) == 0;
    return n;
}

static int64_t next_i64(struct fields *f)
{
    int64_t n = 0;
    f->good &= str_to_i64(next_field(f), &n, ERR_IGNORED) == 0;
    return n;
}

static struct stamp next_stamp(struct fields *f)
{
    struct stamp s = {.size_bytes = next_u64(f)};
    s.mtime_ns = next_i64(f);
    s.ctime_ns = next_i64(f);
    s.inode = next_u64(f);
    return s;
}

/* The field has a name, or a number in lines of the format without a version. */
static enum hash_kind next_kind(struct fields *f)
{
    struct str name = next_field(f);
    for (enum hash_kind k = HASH_NONE; k <= HASH_SHA256; k++)
        if (str_eq(name, str_of(hash_name(k))) || (name.len == 1 && name.ptr[0] == '0' + (char)k))
            return k;
    f->good = false;
    return HASH_NONE;
}

static struct digest next_digest(struct fields *f)
{
    struct digest d = {0};
    enum hash_kind kind = next_kind(f);
    struct str hex = next_field(f);
    if (f->good && kind != HASH_NONE)
        f->good &= digest_parse_hex(kind, hex, &d);
    return d;
}

static void read_fields(struct fields *f, struct logbook_line *r)
{
    switch (r->kind) {
    case LINE_SENT:
        r->stamp = next_stamp(f);
        r->path = next_text(f);
        r->key = next_text(f);
        if (f->rest.ptr) /* older versions did not write it */
            r->etag = next_text(f);
        return;
    case LINE_INTENT:
        r->stamp = next_stamp(f);
        r->part_bytes = next_u64(f);
        r->token = next_text(f);
        r->path = next_text(f);
        r->key = next_text(f);
        return;
    case LINE_BEGUN:
        r->token = next_text(f);
        r->upload_id = next_text(f);
        return;
    case LINE_PART:
        r->token = next_text(f);
        r->number = (unsigned)next_u64(f);
        r->part_bytes = next_u64(f);
        r->digest = next_digest(f);
        r->etag = next_text(f);
        return;
    case LINE_ENDED:
        r->token = next_text(f);
        return;
    case LINE_LOST:
        r->stamp = next_stamp(f);
        r->path = next_text(f);
        return;
    case LINE_VERSION:
        r->number = (unsigned)next_u64(f);
        return;
    }
}

static bool has_its_crc(struct str line)
{
    auto_sbuf crc = SBUF(CRC_LEN);
    if (line.len < CRC_LEN + 2 || line.ptr[CRC_LEN] != ' ')
        return false;
    add_crc(str_from(line, CRC_LEN + 1), &crc);
    return str_eq(sbuf_str(&crc), str_sub(line, 0, CRC_LEN));
}

bool logbook_line_parse(struct str line, char *room, struct logbook_line *ret)
{
    if (!has_its_crc(line))
        return false;
    const char *kind = memchr(kinds, line.ptr[CRC_LEN + 1], sizeof kinds);
    if (!kind)
        return false;
    struct logbook_line r = {.kind = (enum line_kind)(kind - kinds)};
    struct fields f = {.rest = str_from(line, CRC_LEN + 3), .out = room, .good = true};
    read_fields(&f, &r);
    if (!f.good || f.rest.ptr)
        return false;
    *ret = r;
    return true;
}
