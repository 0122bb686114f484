/* SPDX-License-Identifier: Apache-2.0 */
#include "xml_plain.h"

enum { BLANK = 1, TEXT = 2, NAME = 4 };
enum { TEXT_MAX = 8192 }; /* a key has 1,024 bytes, three characters each when it is encoded */

/* '>' is left to the parser, for whom "]]>" is an error. */
static const unsigned char kinds[256] = {
    ['\t'] = BLANK,
    ['\n'] = BLANK,
    ['\r'] = BLANK,
    [' '] = BLANK | TEXT,
    ['!' ... '%'] = TEXT,
    ['\'' ... '/'] = TEXT,
    ['0' ... '9'] = TEXT,
    [':' ... ';'] = TEXT,
    ['='] = TEXT,
    ['?' ... '@'] = TEXT,
    ['A' ... 'Z'] = TEXT | NAME,
    ['[' ... '`'] = TEXT,
    ['a' ... 'z'] = TEXT | NAME,
    ['{' ... '~'] = TEXT,
};

/* AWS writes the quotes of an ETag as the first, MinIO as the second. */
static const struct {
    const char *written;
    size_t len;
    char means;
} references[] = {
    {"&quot;", 6, '"'}, {"&#34;", 5, '"'},   {"&amp;", 5, '&'},  {"&lt;", 4, '<'},
    {"&gt;", 4, '>'},   {"&apos;", 6, '\''}, {"&#39;", 5, '\''},
};

static size_t span(struct str s, size_t from, unsigned char kind)
{
    size_t at = from;
    while (at < s.len && kinds[(unsigned char)s.ptr[at]] & kind)
        at++;
    return at - from;
}

/* The bytes that the reference at the front takes; 0: none that is known here. */
static size_t reference(struct str s, char *ret)
{
    if (s.len == 0 || s.ptr[0] != '&')
        return 0;
    for (size_t i = 0; i < countof(references); i++)
        if (s.len >= references[i].len && memcmp(s.ptr, references[i].written, references[i].len) == 0) {
            *ret = references[i].means;
            return references[i].len;
        }
    return 0;
}

static bool skip_byte(struct str *s, char c)
{
    if (s->len == 0 || s->ptr[0] != c)
        return false;
    s->ptr++;
    s->len--;
    return true;
}

static bool skip(struct str *s, struct str word)
{
    if (s->len < word.len || memcmp(s->ptr, word.ptr, word.len) != 0)
        return false;
    s->ptr += word.len;
    s->len -= word.len;
    return true;
}

static void skip_blanks(struct str *s)
{
    *s = str_from(*s, span(*s, 0, BLANK));
}

static bool take_text(struct str *s, struct str *ret)
{
    char ignored;
    size_t at = span(*s, 0, TEXT);
    for (size_t n; at < s->len && s->ptr[at] == '&'; at += n + span(*s, at + n, TEXT))
        if ((n = reference(str_from(*s, at), &ignored)) == 0)
            return false;
    *ret = (struct str){s->ptr, at};
    *s = str_from(*s, at);
    return at < TEXT_MAX;
}

/* "<Name>text</Name>" */
static bool take_element(struct str *s, struct str *ret_name, struct str *ret_text)
{
    if (!skip_byte(s, '<'))
        return false;
    *ret_name = str_sub(*s, 0, span(*s, 0, NAME));
    *s = str_from(*s, ret_name->len);
    return ret_name->len > 0 && skip_byte(s, '>') && take_text(s, ret_text) && skip_byte(s, '<') && skip_byte(s, '/') &&
           skip(s, *ret_name) && skip_byte(s, '>');
}

static bool is_end_tag(struct str s)
{
    return s.len > 1 && s.ptr[0] == '<' && s.ptr[1] == '/';
}

/* Where the text of an element goes: NULL for one that is not plain here, `other` for one that says nothing to us. */
static struct str *place_of(struct plain_item *item, struct str name, struct str *other)
{
    if (str_eq(name, STR("Key")))
        return &item->key;
    if (str_eq(name, STR("Size")))
        return &item->size;
    if (str_eq(name, STR("LastModified")))
        return &item->mtime;
    if (str_eq(name, STR("ETag")))
        return &item->etag;
    return str_eq(name, STR("Prefix")) || str_eq(name, STR("UploadId")) ? NULL : other;
}

size_t plain_item_read(struct str s, struct plain_item *ret)
{
    struct str rest = s, name, text, other;
    struct plain_item item = {0};
    skip_blanks(&rest);
    if (!skip(&rest, STR("<Contents>")))
        return 0;
    for (skip_blanks(&rest); !is_end_tag(rest); skip_blanks(&rest)) {
        if (!take_element(&rest, &name, &text))
            return 0;
        struct str *place = place_of(&item, name, &other);
        if (!place)
            return 0;
        *place = text;
    }
    if (!skip(&rest, STR("</Contents>")))
        return 0;
    *ret = item;
    return s.len - rest.len;
}

void plain_text(struct str text, struct sbuf *ret)
{
    size_t n;
    for (char c; text.len > 0; text = str_from(text, n)) {
        n = reference(text, &c);
        if (n > 0) {
            sbuf_addc(ret, c);
            continue;
        }
        const char *next = memchr(text.ptr, '&', text.len);
        n = next ? (size_t)(next - text.ptr) : text.len;
        sbuf_add(ret, str_sub(text, 0, n));
    }
}
