/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/encode.h"

static const char *const vectors[][2] = {{"", ""},
                                         {"f", "Zg=="},
                                         {"fo", "Zm8="},
                                         {"foo", "Zm9v"},
                                         {"foob", "Zm9vYg=="},
                                         {"fooba", "Zm9vYmE="},
                                         {"foobar", "Zm9vYmFy"}};

static void base64_of_published_texts_encodes_and_decodes(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(vectors); i++) {
        auto_sbuf text, bytes;
        sbuf_init(&text, 100);
        sbuf_init(&bytes, 100);
        base64_add(&text, vectors[i][0], strlen(vectors[i][0]));
        assert_true(str_eq(sbuf_str(&text), str_of(vectors[i][1])));
        assert_true(base64_parse(str_of(vectors[i][1]), &bytes));
        assert_true(str_eq(sbuf_str(&bytes), str_of(vectors[i][0])));
    }
}

static void base64_of_jwt_is_unpadded_and_decodes(void **state)
{
    (void)state;
    auto_sbuf text, bytes;
    sbuf_init(&text, 100);
    sbuf_init(&bytes, 100);
    base64url_add(&text, "\xfb\xff\xfe\x01", 4);
    assert_string_equal(text.ptr, "-__-AQ");
    assert_true(base64_parse(sbuf_str(&text), &bytes));
    assert_memory_equal(bytes.ptr, "\xfb\xff\xfe\x01", 4);
}

static void text_that_is_not_base64_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"Z", "Zg=", "Zg===", "Zm9v=", "Z m8", "Zh==", "Zm9=", "====", "=", "Zg==Zg=="};
    for (size_t i = 0; i < countof(bad); i++) {
        auto_sbuf bytes;
        sbuf_init(&bytes, 100);
        assert_false(base64_parse(str_of(bad[i]), &bytes));
    }
}

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
    assert_int_equal(percent_decode(sbuf_str(&encoded), &decoded, &err), 0);
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
        assert_int_equal(percent_decode(str_of(bad[i]), &b, &err), -ERR_CORRUPT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64_of_published_texts_encodes_and_decodes),
        cmocka_unit_test(base64_of_jwt_is_unpadded_and_decodes),
        cmocka_unit_test(text_that_is_not_base64_is_refused),
        cmocka_unit_test(every_byte_of_a_key_is_encoded_and_decoded),
        cmocka_unit_test(decode_of_half_an_escape_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
