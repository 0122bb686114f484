/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/base64.h"

/* RFC 4648, section 10. */
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
    struct err err;
    for (size_t i = 0; i < countof(vectors); i++) {
        auto_sbuf text, bytes;
        sbuf_init(&text, 100);
        sbuf_init(&bytes, 100);
        base64_add(&text, vectors[i][0], strlen(vectors[i][0]));
        assert_true(str_eq(sbuf_str(&text), str_of(vectors[i][1])));
        assert_int_equal(base64_parse(str_of(vectors[i][1]), &bytes, &err), 0);
        assert_true(str_eq(sbuf_str(&bytes), str_of(vectors[i][0])));
    }
}

static void base64_of_jwt_is_unpadded_and_decodes(void **state)
{
    (void)state;
    struct err err;
    auto_sbuf text, bytes;
    sbuf_init(&text, 100);
    sbuf_init(&bytes, 100);
    base64url_add(&text, "\xfb\xff\xfe\x01", 4);
    assert_string_equal(text.ptr, "-__-AQ");
    assert_int_equal(base64_parse(sbuf_str(&text), &bytes, &err), 0);
    assert_memory_equal(bytes.ptr, "\xfb\xff\xfe\x01", 4);
}

static void text_that_is_not_base64_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"Z", "Zg=", "Zg===", "Zm9v=", "Z m8", "Zh==", "Zm9=", "====", "=", "Zg==Zg=="};
    struct err err;
    for (size_t i = 0; i < countof(bad); i++) {
        auto_sbuf bytes;
        sbuf_init(&bytes, 100);
        assert_int_equal(base64_parse(str_of(bad[i]), &bytes, &err), -ERR_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64_of_published_texts_encodes_and_decodes),
        cmocka_unit_test(base64_of_jwt_is_unpadded_and_decodes),
        cmocka_unit_test(text_that_is_not_base64_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
