/* SPDX-License-Identifier: Apache-2.0 */
#include "refusal_limit.h"
#include "unit.h"
#include "util/clock.h"
#include <stdio.h>

static const uint64_t start = 1000 * NS_PER_SECOND;

static void token_waits_after_ten_rejections(void **state)
{
    (void)state;
    struct refusal_limit r;
    refusal_limit_init(&r);
    for (int i = 0; i < REFUSAL_BURST; i++) {
        assert_int_equal(refusal_limit_wait(&r, STR("a"), STR("t"), start), 0);
        refusal_limit_add(&r, STR("a"), STR("t"), start);
    }
    assert_int_equal(refusal_limit_wait(&r, STR("a"), STR("t"), start), 0);
    refusal_limit_add(&r, STR("a"), STR("t"), start);
    assert_true(refusal_limit_wait(&r, STR("a"), STR("t"), start) > 0);
    assert_true(refusal_limit_wait(&r, STR("b"), STR("t"), start) > 0); /* the token waits at every address */
}

static void other_token_at_the_same_address_does_not_wait(void **state)
{
    (void)state;
    struct refusal_limit r;
    refusal_limit_init(&r);
    for (int i = 0; i < 3 * REFUSAL_BURST; i++)
        refusal_limit_add(&r, STR("a"), STR("bad"), start);
    assert_true(refusal_limit_wait(&r, STR("a"), STR("bad"), start) > 0);
    assert_int_equal(refusal_limit_wait(&r, STR("a"), STR("good"), start), 0);
}

static void address_waits_after_a_hundred_rejections_of_different_tokens(void **state)
{
    (void)state;
    struct refusal_limit r;
    char token[16];
    refusal_limit_init(&r);
    for (int i = 0; i <= REFUSAL_BURST * REFUSAL_ADDRESS_FACTOR; i++) {
        snprintf(token, sizeof token, "token-%d", i);
        assert_int_equal(refusal_limit_wait(&r, STR("a"), STR("good"), start), 0);
        refusal_limit_add(&r, STR("a"), str_of(token), start);
    }
    assert_true(refusal_limit_wait(&r, STR("a"), STR("good"), start) > 0);
}

static void wait_ends_after_two_seconds_for_each_excess_rejection(void **state)
{
    (void)state;
    struct refusal_limit r;
    refusal_limit_init(&r);
    for (int i = 0; i < REFUSAL_BURST + 3; i++)
        refusal_limit_add(&r, STR("a"), STR("t"), start);
    unsigned wait = refusal_limit_wait(&r, STR("a"), STR("t"), start);
    assert_true(wait > 3 * REFUSAL_SECONDS - 1 && wait < 3 * REFUSAL_SECONDS + 2);
    assert_int_equal(refusal_limit_wait(&r, STR("a"), STR("t"), start + wait * NS_PER_SECOND), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(token_waits_after_ten_rejections),
        cmocka_unit_test(other_token_at_the_same_address_does_not_wait),
        cmocka_unit_test(address_waits_after_a_hundred_rejections_of_different_tokens),
        cmocka_unit_test(wait_ends_after_two_seconds_for_each_excess_rejection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
