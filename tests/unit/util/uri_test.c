/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/uri.h"

static void uri_of_known_store_is_split(void **state)
{
    static const struct {
        const char *text, *scheme, *bucket, *prefix;
    } good[] = {
        {"s3://b", "s3", "b", ""},
        {"s3://b/", "s3", "b", ""},
        {"s3://b/p://q", "s3", "b", "p://q"},
        {"gs://b//p", "gs", "b", "/p"},
        {"s3:///p", "s3", "", "p"},
        {"s3://", "s3", "", ""},
        {"file:///d/", "file", "", "/d/"},
        {"file://host/d", "file", "", "host/d"},
    };
    (void)state;
    for (size_t i = 0; i < countof(good); i++) {
        struct uri u = uri_split(str_of(good[i].text));
        assert_non_null(u.scheme);
        assert_string_equal(u.scheme->name, good[i].scheme);
        assert_true(str_eq(u.bucket, str_of(good[i].bucket)));
        assert_true(str_eq(u.prefix, str_of(good[i].prefix)));
    }
}

static void uri_of_other_text_has_no_scheme(void **state)
{
    static const char *const texts[] = {"gsx://b/", "gs:/b/", "gs", "", "://b", "s3:b://"};
    (void)state;
    for (size_t i = 0; i < countof(texts); i++)
        assert_null(uri_split(str_of(texts[i])).scheme);
    assert_null(uri_split(STR_NULL).scheme);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uri_of_known_store_is_split),
        cmocka_unit_test(uri_of_other_text_has_no_scheme),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
