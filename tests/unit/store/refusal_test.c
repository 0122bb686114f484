/* SPDX-License-Identifier: Apache-2.0 */
#include "refusal.h"
#include "unit.h"

static void what_was_never_served_is_refused_at_once(void **state)
{
    struct refusals r = {0};
    (void)state;
    assert_int_equal(refusal_attempts(&r, JOB_LIST, false), 1);
    assert_int_equal(refusal_attempts(&r, JOB_GET, false), 2); /* others may be served at this moment */
    assert_int_equal(refusal_attempts(&r, JOB_LIST, true), 2);
}

static void what_was_served_before_is_asked_again_a_few_times(void **state)
{
    struct refusals r = {0};
    (void)state;
    refusal_served(&r, JOB_GET);
    refusal_served(&r, JOB_GET);
    assert_in_range(refusal_attempts(&r, JOB_GET, false), 4, 8);
    assert_int_equal(refusal_attempts(&r, JOB_LIST, false), 1); /* another right */
}

static void a_store_that_goes_on_refusing_is_believed(void **state)
{
    struct refusals r = {0};
    (void)state;
    refusal_served(&r, JOB_GET);
    for (int i = 0; i < 31; i++)
        refusal_lasted(&r);
    assert_true(refusal_attempts(&r, JOB_GET, false) > 2);
    refusal_lasted(&r);
    assert_int_equal(refusal_attempts(&r, JOB_GET, false), 1);
    assert_int_equal(refusal_attempts(&r, JOB_GET, true), 2); /* somebody else asks */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_never_served_is_refused_at_once),
        cmocka_unit_test(what_was_served_before_is_asked_again_a_few_times),
        cmocka_unit_test(a_store_that_goes_on_refusing_is_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
