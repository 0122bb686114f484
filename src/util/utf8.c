/* SPDX-License-Identifier: Apache-2.0 */
/* Characters of UTF-8 in borrowed bytes. */
#include "util/str.h"

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
