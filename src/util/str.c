/* SPDX-License-Identifier: Apache-2.0 */
#include "util/str.h"
#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

bool str_eq(struct str a, struct str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool str_eq_nocase(struct str a, struct str b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++)
        if (tolower((unsigned char)a.ptr[i]) != tolower((unsigned char)b.ptr[i]))
            return false;
    return true;
}

bool str_is_one_of(struct str s, const char *const *texts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (str_eq(s, str_of(texts[i])))
            return true;
    return false;
}

bool str_is_in(struct str s, struct str list, char sep)
{
    struct str item;
    while (str_split(&list, sep, &item))
        if (str_eq(str_trim(item), s))
            return true;
    return false;
}

char *text_copy(struct str text)
{
    return text.len ? str_dup(text) : NULL;
}

bool text_same(const char *a, const char *b)
{
    return str_eq(str_of(a), str_of(b));
}

void text_set(char **field, struct str text)
{
    char *copy = text_copy(text); /* before the free: it may be a part of the field */
    free(*field);
    *field = copy;
}

bool str_starts(struct str s, struct str prefix)
{
    return s.len >= prefix.len && str_eq(str_sub(s, 0, prefix.len), prefix);
}

bool str_ends(struct str s, struct str suffix)
{
    return s.len >= suffix.len && str_eq(str_from(s, s.len - suffix.len), suffix);
}

int str_cmp(struct str a, struct str b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n ? memcmp(a.ptr, b.ptr, n) : 0;
    if (c != 0)
        return c;
    return a.len < b.len ? -1 : a.len > b.len;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

struct str str_trim(struct str s)
{
    while (s.len > 0 && is_blank(s.ptr[0]))
        s = str_from(s, 1);
    while (s.len > 0 && is_blank(s.ptr[s.len - 1]))
        s.len--;
    return s;
}

bool str_has(struct str s, struct str part)
{
    return s.len > 0 && memmem(s.ptr, s.len, part.ptr, part.len) != NULL;
}

bool str_is_of(struct str s, const char *chars)
{
    struct str allowed = str_of(chars);
    for (size_t i = 0; i < s.len; i++)
        if (str_find(allowed, s.ptr[i]) < 0)
            return false;
    return true;
}

bool str_is_visible(struct str s, const char *but)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] <= ' ' || s.ptr[i] > '~' || strchr(but, s.ptr[i]))
            return false;
    return true;
}

ssize_t str_find(struct str s, char c)
{
    const char *p = s.len ? memchr(s.ptr, c, s.len) : NULL;
    return p ? p - s.ptr : -1;
}

bool str_split(struct str *rest, char sep, struct str *ret_field)
{
    if (!rest->ptr)
        return false;
    ssize_t at = str_find(*rest, sep);
    if (at < 0) {
        *ret_field = *rest;
        *rest = STR_NULL;
        return true;
    }
    *ret_field = str_sub(*rest, 0, (size_t)at);
    *rest = str_from(*rest, (size_t)at + 1);
    return true;
}

uint64_t str_hash(struct str s, uint64_t seed)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ seed;
    for (size_t i = 0; i < s.len; i++)
        h = (h ^ (unsigned char)s.ptr[i]) * UINT64_C(0x100000001b3);
    return h ^ h >> 32;
}

char *str_dup(struct str s)
{
    char *copy = xcalloc(s.len + 1, 1);
    if (s.len)
        memcpy(copy, s.ptr, s.len);
    return copy;
}

char *str_dupf(const char *fmt, ...)
{
    char *text;
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    assert(n >= 0);
    return text;
}

size_t str_distance(struct str a, struct str b)
{
    size_t row[STR_DISTANCE_MAX + 1];
    if (b.len > STR_DISTANCE_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= b.len; j++)
        row[j] = j;
    for (size_t i = 1; i <= a.len; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.len; j++) {
            bool equal = tolower((unsigned char)a.ptr[i - 1]) == tolower((unsigned char)b.ptr[j - 1]);
            size_t best = min_u64(min_u64(row[j], row[j - 1]) + 1, diagonal + !equal);
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[b.len];
}

bool str_is_nearer(struct str known, struct str typed, size_t *least)
{
    size_t d = str_distance(known, typed);
    if (d >= *least || d > typed.len / 2)
        return false;
    *least = d;
    return true;
}

/* ---- UTF-8 ------------------------------------------------------------------------------------------------------- */

/* Bytes of a character that begins with `lead`, 0 if none does. RFC 3629: no overlong forms, none beyond 10FFFF. */
static size_t utf8_length(unsigned char lead)
{
    if (lead < 0x80)
        return lead > 0;
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

size_t str_utf8_char(struct str s, size_t at)
{
    const unsigned char *p = (const unsigned char *)s.ptr + at;
    size_t len = utf8_length(p[0]);
    if (len < 2 || len > s.len - at)
        return len == 1;
    /* The second byte has a smaller range behind four of the leads: overlong forms, surrogates, beyond 10FFFF. */
    unsigned char low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    unsigned char high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    return len;
}

struct str str_cut(struct str s, size_t max)
{
    size_t len = min_u64(s.len, max);
    while (len < s.len && len > 0 && ((unsigned char)s.ptr[len] & 0xC0) == 0x80)
        len--;
    return str_sub(s, 0, len);
}

bool str_is_utf8(struct str s)
{
    for (size_t i = 0; i < s.len;) {
        size_t n = str_utf8_char(s, i);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

void text_make_printable(char *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t n = str_utf8_char((struct str){text, len}, i);
        if (n == 0 || (unsigned char)text[i] < ' ' || text[i] == 0x7F)
            text[i] = '?';
        i += n ? n : 1;
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

void out_of_memory(void)
{
    static const char line[] = "cistern: out of memory\n";
    (void)!write(STDERR_FILENO, line, sizeof line - 1);
    abort();
}

void *xcalloc(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size ? size : 1);
    if (!p)
        out_of_memory();
    return p;
}

void *xrealloc(void *own_p, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        out_of_memory();
    void *p = realloc(own_p, total ? total : 1);
    if (!p)
        out_of_memory();
    return p;
}

void secret_free(void *own_text)
{
    if (own_text)
        explicit_bzero(own_text, strlen(own_text));
    free(own_text);
}
