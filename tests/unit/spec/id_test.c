/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/id.h"
#include "unit.h"

#define POOL "0123456789ab"

static void id_names_its_pool(void **state)
{
    (void)state;
    struct volume_id id, parsed;
    volume_id_make(POOL, &id);
    assert_true(volume_id_parse(str_of(id.text), &parsed));
    assert_string_equal(parsed.text, id.text);
    assert_true(volume_id_is_of_pool(&id, POOL));
    assert_false(volume_id_is_of_pool(&id, "0123456789ac"));
    assert_false(volume_id_is_of_pool(&id, ""));
    assert_true(str_eq(volume_id_pool(&id), STR(POOL)));
}

static void new_ids_differ(void **state)
{
    (void)state;
    struct volume_id a, b;
    volume_id_make(POOL, &a);
    volume_id_make(POOL, &b);
    assert_string_not_equal(a.text, b.text);
}

static void derived_id_depends_on_pool_and_name_only(void **state)
{
    (void)state;
    struct volume_id a, b;
    volume_id_derive(POOL, STR("pvc-1"), &a);
    volume_id_derive(POOL, STR("pvc-1"), &b);
    assert_true(volume_id_is_of_pool(&a, POOL));
    assert_string_equal(a.text, b.text);
    volume_id_derive(POOL, STR("pvc-2"), &b);
    assert_string_not_equal(a.text, b.text);
}

static void malformed_id_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "v1",
        "../../etc",
        "fake-vol-id-0001",
        "v2-0123456789ab-0123456789ab",
        "v1-0123456789AB-0123456789ab",
        "v1-0123456789ab_0123456789ab",
        "v1-0123456789ab-0123456789ab0",
        "v1-0123456789ab-0123456789a",
        "v1-../../../../-0123456789ab",
    };
    struct volume_id id = {"untouched"};
    for (size_t i = 0; i < countof(bad); i++)
        assert_false(volume_id_parse(str_of(bad[i]), &id));
    assert_false(volume_id_parse(STR("v1-0123456789ab-0123456789\0b"), &id));
    assert_string_equal(id.text, "untouched");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(id_names_its_pool),
        cmocka_unit_test(new_ids_differ),
        cmocka_unit_test(derived_id_depends_on_pool_and_name_only),
        cmocka_unit_test(malformed_id_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
