/* SPDX-License-Identifier: Apache-2.0 */
/* The small words that come from users and stores: numbers, quantities, times, base64, paths. */
#include "fuzz.h"
#include "util/base64.h"
#include "util/clock.h"
#include "util/file.h"

static void base64_goes_round(struct str text)
{
    struct err err;
    auto_sbuf bytes;
    sbuf_init(&bytes, text.len);
    if (base64_parse(text, &bytes, &err) < 0)
        return;
    auto_sbuf again, bytes_again;
    sbuf_init(&again, 2 * text.len + 4);
    sbuf_init(&bytes_again, text.len);
    base64_add(&again, bytes.ptr, bytes.len);
    int r = base64_parse(sbuf_str(&again), &bytes_again, &err);
    assert(r == 0 && str_eq(sbuf_str(&bytes), sbuf_str(&bytes_again)));
}

static void a_number_goes_round(struct str text)
{
    struct err err;
    uint64_t n, again = 0;
    if (str_to_u64(text, &n, &err) < 0)
        return;
    auto_sbuf b;
    sbuf_init(&b, 32);
    sbuf_add_u64(&b, n);
    int r = str_to_u64(sbuf_str(&b), &again, &err);
    assert(r == 0 && n == again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct err err;
    struct str s = fuzz_str(bytes, len);
    uint64_t n;
    int64_t i;
    int r = str_to_i64(s, &i, &err) | str_hex_to_u64(s, &n, &err) | str_to_bytes(s, &n, &err) |
            str_to_duration(s, &n, &err) | time_parse(s, &i, &err) | time_parse_http(s, &i, &err);
    r |= path_check(s, &err);
    base64_goes_round(s);
    a_number_goes_round(s);
    return r & 0;
}
