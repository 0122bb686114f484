/* SPDX-License-Identifier: Apache-2.0 */
#include "util/encode.h"
#include <openssl/evp.h>

/* ---- base64 ------------------------------------------------------------------------------------------------------ */

void base64_add(struct sbuf *b, const void *bytes, size_t len)
{
    unsigned char four[5];
    for (size_t i = 0; i < len; i += 3) {
        int n = EVP_EncodeBlock(four, (const unsigned char *)bytes + i, (int)min_u64(len - i, 3));
        sbuf_add(b, (struct str){(const char *)four, (size_t)n});
    }
}

void base64url_add(struct sbuf *b, const void *bytes, size_t len)
{
    auto_sbuf padded = SBUF(4 * (len / 3 + 1));
    base64_add(&padded, bytes, len);
    for (size_t i = 0; i < padded.len && padded.ptr[i] != '='; i++)
        sbuf_addc(b, (char)(padded.ptr[i] == '+' ? '-' : padded.ptr[i] == '/' ? '_' : padded.ptr[i]));
}

static int value_of(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+' || c == '-')
        return 62;
    return c == '/' || c == '_' ? 63 : -1;
}

bool base64_parse(struct str text, struct sbuf *ret)
{
    struct str rest = text;
    uint32_t bits = 0;
    unsigned have = 0;
    /* Padding is only what fills the last group of four. */
    while (text.len % 4 == 0 && text.len - rest.len < 2 && str_ends(rest, STR("=")))
        rest.len--;
    for (size_t i = 0; i < rest.len; i++) {
        int v = value_of((unsigned char)rest.ptr[i]);
        if (v < 0)
            return false;
        bits = bits << 6 | (uint32_t)v;
        have += 6;
        if (have >= 8) {
            have -= 8;
            sbuf_addc(ret, (char)(bits >> have & 0xFF));
        }
    }
    /* Bits that are left over must be the zeroes of the last character, less than a whole one. */
    return have != 6 && (bits & ((1U << have) - 1)) == 0;
}

/* ---- percent ----------------------------------------------------------------------------------------------------- */

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

void percent_encode_param(const char *name, struct str value, struct sbuf *b)
{
    sbuf_addf(b, "%s%s=", b->len ? "&" : "", name);
    percent_encode(value, b);
}

int percent_decode(struct str s, struct sbuf *b, struct err *err)
{
    size_t run = 0; /* start of the bytes that need no encoding */
    for (size_t i = 0; i < s.len; i++) {
        bool blank = s.ptr[i] == '+';
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
