/* SPDX-License-Identifier: Apache-2.0 */
/* The small words that come from users and stores: numbers, quantities, times, base64, paths. */
#include "fuzz.h"
#include "util/clock.h"
#include "util/encode.h"
#include "util/file.h"

static void base64_goes_round(struct str text)
{
    auto_sbuf bytes;
    sbuf_init(&bytes, text.len);
    if (!base64_parse(text, &bytes))
        return;
    auto_sbuf again, bytes_again;
    sbuf_init(&again, 2 * text.len + 4);
    sbuf_init(&bytes_again, text.len);
    base64_add(&again, bytes.ptr, bytes.len);
    bool is_read = base64_parse(sbuf_str(&again), &bytes_again);
    assert(is_read && str_eq(sbuf_str(&bytes), sbuf_str(&bytes_again)));
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

/* Any two times can be compared, and one is written as a text that is the same time, to the millisecond. */
static void a_time_goes_round(struct str text)
{
    char buf[TIME_TEXT_MAX];
    struct err err;
    int64_t wall_ns, again_ns;
    if (time_parse(text, &wall_ns, &err) < 0 && !time_parse_http(text, &wall_ns))
        return;
    int r = time_parse(str_of(time_text(wall_ns, buf)), &again_ns, &err);
    assert(r == 0 && wall_ns - again_ns >= 0 && wall_ns - again_ns < (int64_t)NS_PER_MS);
    assert(wall_ns - clock_wall_ns() < INT64_MAX && clock_wall_ns() - wall_ns > INT64_MIN);
}

/* A path that is taken stays below where it is put. */
static void a_path_stays(struct str path)
{
    struct str rest = path, name;
    struct err err;
    if (path_check(path, &err) < 0)
        return;
    while (str_split(&rest, '/', &name))
        assert(name.len > 0 && !str_eq(name, STR(".")) && !str_eq(name, STR("..")) && !memchr(name.ptr, 0, name.len));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct err err;
    struct str s = fuzz_str(bytes, len);
    uint64_t n;
    int64_t i;
    int r = str_to_i64(s, &i, &err) | str_to_bytes(s, &n, &err) | str_to_duration(s, &n, &err);
    a_time_goes_round(s);
    a_path_stays(s);
    base64_goes_round(s);
    a_number_goes_round(s);
    return r & 0;
}
