/* SPDX-License-Identifier: Apache-2.0 */
#include "util/base64.h"
#include <openssl/evp.h>

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
