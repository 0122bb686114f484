/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "etag.h"

static void quotes_and_weakness_make_no_other_etag(void **state)
{
    (void)state;
    assert_true(etag_is_same(STR("\"a\""), STR("a")));
    assert_true(etag_is_same(STR("W/\"a\""), STR("\"a\"")));
    assert_false(etag_is_same(STR("\"a\""), STR("\"b\"")));
    assert_true(str_eq(etag_bare(STR("\"")), STR("\"")));
    assert_true(etag_is_weak(STR("W/\"a\"")));
}

static bool same(struct store_object a, struct store_object b)
{
    return store_object_is_same(&a, &b) && store_object_is_same(&b, &a);
}

static void properties_in_both_answers_must_agree(void **state)
{
    (void)state;
    const struct str a = STR("\"a\""), b = STR("\"b\"");
    assert_true(same((struct store_object){.etag = a, .mtime_ns = 1}, (struct store_object){.etag = a, .mtime_ns = 2}));
    assert_false(
        same((struct store_object){.etag = a, .mtime_ns = 1}, (struct store_object){.etag = b, .mtime_ns = 1}));
    assert_false(same((struct store_object){.mtime_ns = 1}, (struct store_object){.mtime_ns = 2}));
    assert_false(same((struct store_object){.etag = a, .mtime_ns = 1}, (struct store_object){.mtime_ns = 2}));
    assert_true(
        same((struct store_object){.generation = 7, .etag = a}, (struct store_object){.generation = 7, .etag = b}));
    assert_false(same((struct store_object){.generation = 7}, (struct store_object){.generation = 8}));
    assert_true(same((struct store_object){.etag = a}, (struct store_object){0}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotes_and_weakness_make_no_other_etag),
        cmocka_unit_test(properties_in_both_answers_must_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
