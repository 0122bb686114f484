/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/percent.h"

static void every_byte_of_a_key_is_encoded_and_decoded(void **state)
{
    (void)state;
    char all[256];
    struct err err;
    auto_sbuf encoded, decoded;
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (char)i;
    sbuf_init(&encoded, 4096);
    sbuf_init(&decoded, 4096);
    percent_encode_path((struct str){all, sizeof all}, &encoded);
    for (size_t i = 0; i < encoded.len; i++)
        assert_non_null(strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/%", encoded.ptr[i]));
    assert_non_null(strstr(encoded.ptr, "%00%01"));
    assert_non_null(strstr(encoded.ptr, "%2B%2C-./0"));
    assert_int_equal(percent_decode(sbuf_str(&encoded), true, &decoded, &err), 0);
    assert_int_equal(decoded.len, sizeof all);
    assert_memory_equal(decoded.ptr, all, sizeof all);
    sbuf_clear(&encoded);
    percent_encode(STR("a/b c"), &encoded);
    assert_string_equal(encoded.ptr, "a%2Fb%20c");
}

static void decode_of_half_an_escape_fails(void **state)
{
    (void)state;
    static const char *const bad[] = {"%", "a%2", "%zz", "%2G"};
    struct err err;
    for (size_t i = 0; i < countof(bad); i++) {
        auto_sbuf b;
        sbuf_init(&b, 64);
        assert_int_equal(percent_decode(str_of(bad[i]), false, &b, &err), -ERR_CORRUPT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_of_a_key_is_encoded_and_decoded),
        cmocka_unit_test(decode_of_half_an_escape_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
