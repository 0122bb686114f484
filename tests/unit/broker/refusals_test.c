/* SPDX-License-Identifier: Apache-2.0 */
#include "refusals.h"
#include "unit.h"
#include "util/clock.h"
#include <stdio.h>

static const uint64_t start = 1000 * NS_PER_SECOND;

static void ten_refusals_are_borne_and_the_eleventh_waits(void **state)
{
    (void)state;
    struct refusals r;
    refusals_init(&r);
    for (int i = 0; i < REFUSALS_BURST; i++) {
        assert_int_equal(refusals_wait(&r, STR("a"), STR("t"), start), 0);
        refusals_add(&r, STR("a"), STR("t"), start);
    }
    assert_int_equal(refusals_wait(&r, STR("a"), STR("t"), start), 0);
    refusals_add(&r, STR("a"), STR("t"), start);
    assert_true(refusals_wait(&r, STR("a"), STR("t"), start) > 0);
    assert_true(refusals_wait(&r, STR("b"), STR("t"), start) > 0); /* it is the token's, wherever it comes from */
    refusals_done(&r);
}

static void a_neighbour_behind_the_same_address_is_heard(void **state)
{
    (void)state;
    struct refusals r;
    refusals_init(&r);
    for (int i = 0; i < 3 * REFUSALS_BURST; i++)
        refusals_add(&r, STR("a"), STR("bad"), start);
    assert_true(refusals_wait(&r, STR("a"), STR("bad"), start) > 0);
    assert_int_equal(refusals_wait(&r, STR("a"), STR("good"), start), 0);
    refusals_done(&r);
}

static void who_comes_with_another_token_each_time_is_stopped_by_the_address(void **state)
{
    (void)state;
    struct refusals r;
    char token[16];
    refusals_init(&r);
    for (int i = 0; i <= REFUSALS_BURST * REFUSALS_NEIGHBOURS; i++) {
        snprintf(token, sizeof token, "token-%d", i);
        assert_int_equal(refusals_wait(&r, STR("a"), STR("good"), start), 0);
        refusals_add(&r, STR("a"), str_of(token), start);
    }
    assert_true(refusals_wait(&r, STR("a"), STR("good"), start) > 0);
    refusals_done(&r);
}

static void time_pays_for_refusals(void **state)
{
    (void)state;
    struct refusals r;
    refusals_init(&r);
    for (int i = 0; i < REFUSALS_BURST + 3; i++)
        refusals_add(&r, STR("a"), STR("t"), start);
    unsigned wait = refusals_wait(&r, STR("a"), STR("t"), start);
    assert_true(wait > 3 * REFUSALS_SECONDS - 1 && wait < 3 * REFUSALS_SECONDS + 2);
    assert_int_equal(refusals_wait(&r, STR("a"), STR("t"), start + wait * NS_PER_SECOND), 0);
    refusals_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_refusals_are_borne_and_the_eleventh_waits),
        cmocka_unit_test(a_neighbour_behind_the_same_address_is_heard),
        cmocka_unit_test(who_comes_with_another_token_each_time_is_stopped_by_the_address),
        cmocka_unit_test(time_pays_for_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
