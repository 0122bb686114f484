/* SPDX-License-Identifier: Apache-2.0 */
#include "util/percent.h"

static bool is_unreserved(unsigned char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

static void encode(struct str s, bool keep_slash, struct sbuf *b)
{
    static const char hex[] = "0123456789ABCDEF";
    char piece[3 * 64];
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        bool plain = is_unreserved(c) || (keep_slash && c == '/');
        if (n + 3 > sizeof piece) {
            sbuf_add(b, (struct str){piece, n});
            n = 0;
        }
        piece[n++] = plain ? (char)c : '%';
        if (!plain) {
            piece[n++] = hex[c >> 4];
            piece[n++] = hex[c & 15];
        }
    }
    sbuf_add(b, (struct str){piece, n});
}

void percent_encode_path(struct str s, struct sbuf *b)
{
    encode(s, true, b);
}

void percent_encode(struct str s, struct sbuf *b)
{
    encode(s, false, b);
}

int percent_decode(struct str s, bool plus, struct sbuf *b, struct err *err)
{
    size_t run = 0; /* start of the bytes that need no encoding */
    for (size_t i = 0; i < s.len; i++) {
        bool blank = plus && s.ptr[i] == '+';
        if (s.ptr[i] != '%' && !blank)
            continue;
        sbuf_add(b, str_sub(s, run, i - run));
        if (blank) {
            sbuf_addc(b, ' ');
            run = i + 1;
            continue;
        }
        int high = i + 2 < s.len ? hex_digit(s.ptr[i + 1]) : -1, low = i + 2 < s.len ? hex_digit(s.ptr[i + 2]) : -1;
        if (high < 0 || low < 0)
            return err_set(err, ERR_CORRUPT, "'%.*s' is not percent-encoded", (int)min_u64(s.len, 64), s.ptr);
        sbuf_addc(b, (char)(high << 4 | low));
        i += 2;
        run = i + 1;
    }
    sbuf_add(b, str_from(s, run));
    return 0;
}
