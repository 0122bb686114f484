/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "upload_id.h"

static void ids_of_one_key_differ_and_begin_alike(void **state)
{
    (void)state;
    char a[UPLOAD_ID_LEN + 1], b[UPLOAD_ID_LEN + 1], of_key[UPLOAD_KEY_LEN + 1], of_another[UPLOAD_KEY_LEN + 1];
    upload_id_make(STR("a/key"), a);
    upload_id_make(STR("a/key"), b);
    upload_id_of_key(STR("a/key"), of_key);
    upload_id_of_key(STR("a/kez"), of_another);
    assert_string_not_equal(a, b);
    assert_true(str_starts(str_of(a), str_of(of_key)));
    assert_true(str_starts(str_of(b), str_of(of_key)));
    assert_string_not_equal(of_key, of_another);
    assert_true(upload_id_is_valid(str_of(a)));
}

static void upload_id_with_other_characters_is_invalid(void **state)
{
    (void)state;
    assert_false(upload_id_is_valid(STR("")));
    assert_false(upload_id_is_valid(STR("0123456789abcdef0123456789abcde")));
    assert_false(upload_id_is_valid(STR("0123456789abcdef0123456789abcdef0")));
    assert_false(upload_id_is_valid(STR("../../../../../../../../etc/pass")));
    assert_false(upload_id_is_valid(STR("0123456789ABCDEF0123456789ABCDEF")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_one_key_differ_and_begin_alike),
        cmocka_unit_test(upload_id_with_other_characters_is_invalid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
