/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "volume/spec.h"

static void an_id_names_its_pool(void **state)
{
    (void)state;
    char id[SPEC_ID_LEN + 1];
    spec_id_make("0123456789ab", id);
    assert_int_equal(strlen(id), SPEC_ID_LEN);
    assert_true(spec_id_is_valid(str_of(id)));
    assert_true(spec_id_is_of_pool(str_of(id), "0123456789ab"));
    assert_false(spec_id_is_of_pool(str_of(id), "0123456789ac"));
}

static void two_ids_differ(void **state)
{
    (void)state;
    char a[SPEC_ID_LEN + 1], b[SPEC_ID_LEN + 1];
    spec_id_make("0123456789ab", a);
    spec_id_make("0123456789ab", b);
    assert_string_not_equal(a, b);
}

static void a_derived_id_is_the_same_for_all_who_ask(void **state)
{
    (void)state;
    char a[SPEC_ID_LEN + 1], b[SPEC_ID_LEN + 1];
    spec_id_derive("0123456789ab", STR("pvc-1"), a);
    spec_id_derive("0123456789ab", STR("pvc-1"), b);
    assert_true(spec_id_is_of_pool(str_of(a), "0123456789ab"));
    assert_string_equal(a, b);
    spec_id_derive("0123456789ab", STR("pvc-2"), b);
    assert_string_not_equal(a, b);
}

static void what_is_no_id_is_not_valid(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "v1",
        "fake-vol-id-0001",
        "v2-0123456789ab-0123456789ab",
        "v1-0123456789AB-0123456789ab",
        "v1-0123456789ab_0123456789ab",
        "v1-0123456789ab-0123456789ab0",
        "v1-0123456789ab-0123456789a",
        "v1-../../../../-0123456789ab",
    };
    for (size_t i = 0; i < countof(bad); i++)
        assert_false(spec_id_is_valid(str_of(bad[i])));
    assert_false(spec_id_is_valid(STR("v1-0123456789ab-0123456789\0b")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_names_its_pool),
        cmocka_unit_test(two_ids_differ),
        cmocka_unit_test(a_derived_id_is_the_same_for_all_who_ask),
        cmocka_unit_test(what_is_no_id_is_not_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
