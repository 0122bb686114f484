/* SPDX-License-Identifier: Apache-2.0 */
#include "hedge.h"
#include "unit.h"
#include "util/clock.h"

#define MS NS_PER_MS

static void answered(struct hedge *h, unsigned times, uint64_t ns)
{
    for (unsigned i = 0; i < times; i++) {
        hedge_sent(h);
        hedge_answered(h, HEDGE_GET, ns);
    }
}

static void of_few_answers_nothing_is_concluded(void **state)
{
    (void)state;
    struct hedge h = {0};
    answered(&h, 15, 10 * MS);
    assert_int_equal(hedge_wait_ns(&h, HEDGE_GET), 0);
    assert_false(hedge_is_late(&h, HEDGE_GET, UINT64_MAX / 8));
}

static void fewer_than_a_hundred_answers_let_wait_four_times_the_longest_and_a_second(void **state)
{
    (void)state;
    struct hedge h = {0};
    answered(&h, 15, 10 * MS);
    answered(&h, 1, 400 * MS);
    assert_in_range(hedge_wait_ns(&h, HEDGE_GET), 1600 * MS, 2000 * MS);
    struct hedge quick = {0};
    answered(&quick, 16, 10 * MS);
    assert_int_equal(hedge_wait_ns(&quick, HEDGE_GET), NS_PER_SECOND);
    answered(&quick, 100, 10 * MS);
    assert_int_equal(hedge_wait_ns(&quick, HEDGE_GET), 50 * MS);
}

static void wait_is_the_99th_percentile_within_a_fifth(void **state)
{
    (void)state;
    struct hedge h = {0};
    for (int i = 0; i < 64; i++) {
        answered(&h, 98, 100 * MS);
        answered(&h, 2, 400 * MS);
    }
    assert_in_range(hedge_wait_ns(&h, HEDGE_GET), 400 * MS, 500 * MS);
    struct hedge few = {0};
    for (int i = 0; i < 64; i++) {
        answered(&few, 199, 100 * MS);
        answered(&few, 1, 400 * MS);
    }
    assert_in_range(hedge_wait_ns(&few, HEDGE_GET), 100 * MS, 125 * MS);
}

static void any_duration_has_its_place(void **state)
{
    (void)state;
    for (uint64_t ns = 1; ns < UINT64_C(1) << 62; ns *= 3) {
        struct hedge h = {0};
        answered(&h, 128, ns);
        uint64_t most = 275 * NS_PER_SECOND;
        assert_in_range(hedge_wait_ns(&h, HEDGE_GET), ns < most ? ns : most / 2,
                        (ns < most ? ns : most) * 5 / 4 + 51 * MS);
    }
}

static void a_wait_is_never_as_short_as_our_own_delays(void **state)
{
    (void)state;
    struct hedge h = {0};
    answered(&h, 1000, 1 * MS);
    assert_int_equal(hedge_wait_ns(&h, HEDGE_GET), 50 * MS);
}

static void it_follows_a_store_that_becomes_slower(void **state)
{
    (void)state;
    struct hedge h = {0};
    answered(&h, 100000, 60 * MS);
    assert_in_range(hedge_wait_ns(&h, HEDGE_GET), 60 * MS, 75 * MS);
    answered(&h, 1000, 600 * MS);
    assert_in_range(hedge_wait_ns(&h, HEDGE_GET), 600 * MS, 750 * MS);
}

static unsigned taken(struct hedge *h, unsigned tries, uint64_t waited)
{
    unsigned n = 0;
    for (unsigned i = 0; i < tries; i++)
        n += hedge_is_late(h, HEDGE_GET, waited) && hedge_take(h, HEDGE_GET, 1, waited);
    return n;
}

static void hedges_are_at_most_one_in_a_hundred(void **state)
{
    (void)state;
    struct hedge h = {0};
    unsigned all = 0;
    for (unsigned i = 0; i < 20000; i++) {
        answered(&h, 1, 100 * MS);
        all += taken(&h, 1, 10 * NS_PER_SECOND);
    }
    assert_in_range(all, 190, 200);
}

static void unused_budget_is_saved_up_to_twenty(void **state)
{
    (void)state;
    struct hedge h = {0};
    answered(&h, 1000000, 100 * MS);
    assert_int_equal(taken(&h, 100, 10 * NS_PER_SECOND), 20);
}

static void the_last_ones_are_for_who_waits_longest(void **state)
{
    (void)state;
    struct hedge h = {0};
    answered(&h, 1000, 100 * MS);
    assert_int_equal(taken(&h, 100, 50 * MS), 0); /* not yet at its time */
    assert_int_equal(taken(&h, 100, 150 * MS), 6);
    assert_int_equal(taken(&h, 100, 700 * MS), 4);
}

static void retries_take_from_the_hedge_budget(void **state)
{
    (void)state;
    struct hedge h = {0};
    answered(&h, 1000, 100 * MS);
    for (int i = 0; i < 50; i++)
        hedge_retried(&h);
    assert_int_equal(taken(&h, 10, 10 * NS_PER_SECOND), 0);
    answered(&h, 100, 100 * MS);
    assert_int_equal(taken(&h, 10, 10 * NS_PER_SECOND), 1);
}

static void the_budget_begins_with_five(void **state)
{
    (void)state;
    struct hedge h;
    hedge_init(&h);
    answered(&h, 16, 10 * MS);
    assert_int_equal(taken(&h, 100, 10 * NS_PER_SECOND), 5);
}

static void the_first_page_is_late_after_seconds_and_later_ones_after_four_times_the_median(void **state)
{
    (void)state;
    struct hedge h;
    hedge_init(&h);
    assert_int_equal(hedge_wait_ns(&h, HEDGE_LIST), 4 * NS_PER_SECOND);
    for (int i = 0; i < 3; i++)
        hedge_answered(&h, HEDGE_LIST, 500 * MS);
    hedge_answered(&h, HEDGE_LIST, 20 * NS_PER_SECOND); /* one that crawled */
    assert_in_range(hedge_wait_ns(&h, HEDGE_LIST), 2000 * MS, 2500 * MS);
    for (int i = 0; i < 200; i++)
        hedge_answered(&h, HEDGE_LIST, 500 * MS);
    assert_in_range(hedge_wait_ns(&h, HEDGE_LIST), 500 * MS, 625 * MS);
    assert_int_equal(hedge_wait_ns(&h, HEDGE_HEAD), 4 * NS_PER_SECOND);
    assert_int_equal(hedge_wait_ns(&h, HEDGE_GET), 0);
}

static void a_body_is_slow_beside_others_of_its_kind(void **state)
{
    (void)state;
    const uint64_t kib = 1024, mib = kib * kib;
    struct hedge h = {0};
    assert_false(hedge_is_slow(&h, 8 * mib, mib, 60 * NS_PER_SECOND)); /* others are not known */
    hedge_body(&h, 100 * kib, 2 * MS);
    hedge_body(&h, 8 * mib, 160 * MS);
    assert_true(hedge_is_slow(&h, 8 * mib, 400 * kib, 2 * NS_PER_SECOND));
    assert_false(hedge_is_slow(&h, 8 * mib, 4 * mib, 300 * MS)); /* four times as slow at most */
    assert_true(hedge_is_slow(&h, 100 * kib, 4 * kib, 2 * NS_PER_SECOND));
    assert_false(hedge_is_slow(&h, 100 * kib, 90 * kib, 2 * NS_PER_SECOND)); /* the rest comes within a second */
    assert_true(hedge_is_slow(&h, 100 * kib, 0, 2 * NS_PER_SECOND));
}

static void a_store_that_asks_for_less_is_not_asked_twice_for_ten_seconds(void **state)
{
    (void)state;
    struct hedge h = {0};
    answered(&h, 1000, 100 * MS);
    hedge_slow_down(&h, NS_PER_SECOND);
    assert_false(hedge_take(&h, HEDGE_GET, 10 * NS_PER_SECOND, 5 * NS_PER_SECOND));
    assert_true(hedge_take(&h, HEDGE_GET, 11 * NS_PER_SECOND, 5 * NS_PER_SECOND));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_few_answers_nothing_is_concluded),
        cmocka_unit_test(fewer_than_a_hundred_answers_let_wait_four_times_the_longest_and_a_second),
        cmocka_unit_test(wait_is_the_99th_percentile_within_a_fifth),
        cmocka_unit_test(any_duration_has_its_place),
        cmocka_unit_test(a_wait_is_never_as_short_as_our_own_delays),
        cmocka_unit_test(it_follows_a_store_that_becomes_slower),
        cmocka_unit_test(hedges_are_at_most_one_in_a_hundred),
        cmocka_unit_test(unused_budget_is_saved_up_to_twenty),
        cmocka_unit_test(the_last_ones_are_for_who_waits_longest),
        cmocka_unit_test(retries_take_from_the_hedge_budget),
        cmocka_unit_test(the_budget_begins_with_five),
        cmocka_unit_test(the_first_page_is_late_after_seconds_and_later_ones_after_four_times_the_median),
        cmocka_unit_test(a_body_is_slow_beside_others_of_its_kind),
        cmocka_unit_test(a_store_that_asks_for_less_is_not_asked_twice_for_ten_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
