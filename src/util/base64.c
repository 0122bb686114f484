/* SPDX-License-Identifier: Apache-2.0 */
#include "util/base64.h"

static void add(struct sbuf *b, const unsigned char *p, size_t len, const char *alphabet, bool pad)
{
    for (size_t i = 0; i < len; i += 3) {
        size_t have = len - i < 3 ? len - i : 3;
        uint32_t bits = (uint32_t)p[i] << 16;
        if (have > 1)
            bits |= (uint32_t)p[i + 1] << 8;
        if (have > 2)
            bits |= p[i + 2];
        char four[4];
        for (unsigned k = 0; k < 4; k++)
            four[k] = k <= have ? alphabet[bits >> (18 - 6 * k) & 63] : '=';
        sbuf_add(b, (struct str){four, pad ? 4 : have + 1});
    }
}

void base64_add(struct sbuf *b, const void *bytes, size_t len)
{
    add(b, bytes, len, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", true);
}

void base64url_add(struct sbuf *b, const void *bytes, size_t len)
{
    add(b, bytes, len, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", false);
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

int base64_parse(struct str text, struct sbuf *ret, struct err *err)
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
            return err_set(err, ERR_INVALID, "byte %zu is not a base64 character", i + 1);
        bits = bits << 6 | (uint32_t)v;
        have += 6;
        if (have >= 8) {
            have -= 8;
            sbuf_addc(ret, (char)(bits >> have & 0xFF));
        }
    }
    if (have == 6 || (bits & ((1U << have) - 1)) != 0)
        return err_set(err, ERR_INVALID, "a base64 text of %zu characters ends in the middle of a byte", text.len);
    return 0;
}
