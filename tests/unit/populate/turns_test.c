/* SPDX-License-Identifier: Apache-2.0 */
#include "turns.h"
#include "unit.h"

static void without_a_limit_everybody_goes(void **state)
{
    (void)state;
    struct turns t = {0};
    for (int i = 0; i < 100; i++)
        assert_true(turns_take(&t, "v", "n", false));
    assert_null(turns_next(&t));
    turns_leave(&t, "v");
    turns_done(&t);
}

static void who_came_first_goes_first(void **state)
{
    (void)state;
    struct turns t = {.most = 1};
    assert_true(turns_take(&t, "a", "n1", false));
    assert_false(turns_take(&t, "b", "n2", false));
    assert_false(turns_take(&t, "c", "n3", false));
    assert_true(turns_take(&t, "a", "n1", false)); /* it has its turn already */
    assert_null(turns_next(&t));
    turns_leave(&t, "a");
    assert_string_equal(turns_next(&t), "b");
    assert_false(turns_take(&t, "c", "n3", false)); /* though it asks sooner */
    assert_true(turns_take(&t, "b", "n2", false));
    turns_leave(&t, "b");
    assert_true(turns_take(&t, "c", "n3", false));
    turns_done(&t);
}

static void a_busy_node_holds_up_nobody_elses(void **state)
{
    (void)state;
    struct turns t = {.most = 3, .most_a_node = 1};
    assert_true(turns_take(&t, "a", "n1", false));
    assert_false(turns_take(&t, "b", "n1", false));
    assert_true(turns_take(&t, "c", "n2", false));
    assert_true(turns_take(&t, "d", "n3", false));
    assert_false(turns_take(&t, "e", "n4", false)); /* three are three */
    turns_leave(&t, "c");
    assert_string_equal(turns_next(&t), "e");
    assert_true(turns_take(&t, "e", "n4", false));
    turns_leave(&t, "a");
    assert_string_equal(turns_next(&t), "b");
    assert_true(turns_take(&t, "b", "n1", false));
    turns_done(&t);
}

static void what_runs_already_counts_whatever_the_limit_says(void **state)
{
    (void)state;
    struct turns t = {.most = 1};
    assert_true(turns_take(&t, "a", "n1", true));
    assert_true(turns_take(&t, "b", "n1", true));
    assert_false(turns_take(&t, "c", "n2", false));
    turns_leave(&t, "a");
    assert_false(turns_take(&t, "c", "n2", false));
    turns_leave(&t, "b");
    turns_leave(&t, "nobody");
    assert_false(turns_take(&t, "d", "n2", true) && turns_take(&t, "e", "n2", false));
    turns_forget_waiting(&t);
    turns_leave(&t, "d");
    assert_null(turns_next(&t));
    assert_true(turns_take(&t, "c", "n2", false));
    turns_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_limit_everybody_goes),
        cmocka_unit_test(who_came_first_goes_first),
        cmocka_unit_test(a_busy_node_holds_up_nobody_elses),
        cmocka_unit_test(what_runs_already_counts_whatever_the_limit_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
