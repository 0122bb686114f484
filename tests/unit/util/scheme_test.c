/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/scheme.h"

static void scheme_of_known_store_is_found(void **state)
{
    (void)state;
    assert_string_equal(scheme_of(STR("s3://b/"))->name, "s3");
    assert_string_equal(scheme_of(STR("gs://b/p"))->name, "gs");
    assert_true(scheme_of(STR("file:///d/"))->is_path);
    assert_true(str_eq(scheme_rest(STR("s3://b/p://q")), STR("b/p://q")));
}

static void scheme_of_other_text_is_null(void **state)
{
    static const char *const texts[] = {"gsx://b/", "gs:/b/", "gs", "", "://b", "s3:b://"};
    (void)state;
    for (size_t i = 0; i < countof(texts); i++)
        assert_null(scheme_of(str_of(texts[i])));
    assert_null(scheme_of(STR_NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scheme_of_known_store_is_found),
        cmocka_unit_test(scheme_of_other_text_is_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
