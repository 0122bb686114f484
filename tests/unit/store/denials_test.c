/* SPDX-License-Identifier: Apache-2.0 */
#include "denials.h"
#include "unit.h"

static void kind_of_request_never_served_is_not_retried_when_denied(void **state)
{
    struct store_denials r = {0};
    (void)state;
    assert_int_equal(denials_attempts_max(&r, STORE_OP_LIST, false), 1);
    assert_int_equal(denials_attempts_max(&r, STORE_OP_GET, false), 2); /* others may be served at this moment */
    assert_int_equal(denials_attempts_max(&r, STORE_OP_LIST, true), 2);
}

static void kind_of_request_served_before_is_retried_a_few_times(void **state)
{
    struct store_denials r = {0};
    (void)state;
    denials_note_success(&r, STORE_OP_GET);
    denials_note_success(&r, STORE_OP_GET);
    assert_in_range(denials_attempts_max(&r, STORE_OP_GET, false), 4, 8);
    assert_int_equal(denials_attempts_max(&r, STORE_OP_LIST, false), 1); /* another right */
}

static void lasting_denials_become_final(void **state)
{
    struct store_denials r = {0};
    (void)state;
    denials_note_success(&r, STORE_OP_GET);
    for (int i = 0; i < 31; i++)
        denials_note_final(&r);
    assert_true(denials_attempts_max(&r, STORE_OP_GET, false) > 2);
    denials_note_final(&r);
    assert_int_equal(denials_attempts_max(&r, STORE_OP_GET, false), 1);
    assert_int_equal(denials_attempts_max(&r, STORE_OP_GET, true), 2); /* with other credentials */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kind_of_request_never_served_is_not_retried_when_denied),
        cmocka_unit_test(kind_of_request_served_before_is_retried_a_few_times),
        cmocka_unit_test(lasting_denials_become_final),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
