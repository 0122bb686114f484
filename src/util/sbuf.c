/* SPDX-License-Identifier: Apache-2.0 */
/* The builder of texts. */
#include "util/str.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

void sbuf_init(struct sbuf *b, size_t ceiling)
{
    *b = (struct sbuf){.ceiling = ceiling};
}

void sbuf_done(struct sbuf *b)
{
    free(b->ptr);
    *b = (struct sbuf){.ceiling = b->ceiling};
}

void sbuf_clear(struct sbuf *b)
{
    b->len = 0;
    b->overflow = false;
    if (b->ptr)
        b->ptr[0] = '\0';
}

void sbuf_set(struct sbuf *b, struct str s)
{
    sbuf_clear(b);
    sbuf_add(b, s);
}

/* Makes room for `more` bytes and a NUL. False beyond the ceiling, and from then on. */
static bool sbuf_grow(struct sbuf *b, size_t more)
{
    if (b->overflow || more > b->ceiling - b->len) {
        b->overflow = true;
        return false;
    }
    size_t need = b->len + more + 1;
    if (need > b->room) {
        size_t room = b->room ? b->room : 64;
        while (room < need)
            room *= 2;
        b->ptr = xrealloc(b->ptr, room, 1);
        b->room = room;
    }
    return true;
}

void sbuf_add(struct sbuf *b, struct str s)
{
    if (!sbuf_grow(b, s.len))
        return;
    if (s.len)
        memcpy(b->ptr + b->len, s.ptr, s.len);
    b->len += s.len;
    b->ptr[b->len] = '\0';
}

void sbuf_addc(struct sbuf *b, char c)
{
    if (!sbuf_grow(b, 1))
        return;
    b->ptr[b->len++] = c;
    b->ptr[b->len] = '\0';
}

void sbuf_adds(struct sbuf *b, const char *c_string)
{
    sbuf_add(b, str_of(c_string));
}

void sbuf_addf(struct sbuf *b, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    assert(n >= 0);
    if (sbuf_grow(b, (size_t)n)) {
        vsnprintf(b->ptr + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void sbuf_add_u64(struct sbuf *b, uint64_t n)
{
    char digits[20];
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + n % 10);
    while ((n /= 10) != 0);
    sbuf_add(b, (struct str){digits + at, sizeof digits - at});
}

char *hex_text(const void *bytes, size_t len, char *buf)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < len; i++) {
        buf[2 * i] = "0123456789abcdef"[p[i] >> 4];
        buf[2 * i + 1] = "0123456789abcdef"[p[i] & 15];
    }
    buf[2 * len] = '\0';
    return buf;
}

void sbuf_add_json(struct sbuf *b, struct str s)
{
    sbuf_addc(b, '"');
    for (size_t i = 0, n; i < s.len; i += n ? n : 1) {
        unsigned char c = (unsigned char)s.ptr[i];
        n = str_utf8_char(s, i);
        if (c < ' ' || c == 0x7F)
            sbuf_addf(b, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            sbuf_addf(b, "\\%c", c);
        else if (n == 0)
            sbuf_adds(b, "\\ufffd");
        else
            sbuf_add(b, str_sub(s, i, n));
    }
    sbuf_addc(b, '"');
}

void sbuf_add_hex(struct sbuf *b, const void *bytes, size_t len)
{
    if (!sbuf_grow(b, 2 * len))
        return;
    hex_text(bytes, len, b->ptr + b->len);
    b->len += 2 * len;
}

void sbuf_cut(struct sbuf *b, size_t len)
{
    assert(len <= b->len);
    b->len = len;
    if (b->ptr)
        b->ptr[len] = '\0';
}

int sbuf_take(struct sbuf *b, char **ret, struct err *err)
{
    if (b->overflow)
        return err_set(err, ERR_NO_SPACE, "a text is longer than its ceiling of %zu bytes", b->ceiling);
    *ret = b->ptr ? take(&b->ptr) : str_dup(STR_NULL);
    sbuf_done(b);
    return 0;
}
