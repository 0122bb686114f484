/* SPDX-License-Identifier: Apache-2.0 */
#include "io/rate.h"
#include "unit.h"
#include "util/clock.h"
#include <pthread.h>

static void no_cap_means_no_wait(void **state)
{
    (void)state;
    struct rate r = {0};
    assert_int_equal(rate_reserve(&r, UINT64_MAX, 5), 0);
}

static void a_burst_of_a_tenth_of_a_second_is_free(void **state)
{
    (void)state;
    struct rate r = {.units_per_second = 1000};
    assert_int_equal(rate_reserve(&r, 100, NS_PER_SECOND), 0);
    assert_int_equal(rate_reserve(&r, 1, NS_PER_SECOND), NS_PER_SECOND / 1000);
}

static void rate_after_a_pause_allows_one_second_more(void **state)
{
    (void)state;
    struct rate r = {.units_per_second = 1000};
    uint64_t now = 2 * NS_PER_SECOND;
    assert_int_equal(rate_reserve(&r, 1100, now), NS_PER_SECOND);
    now += 1000 * NS_PER_SECOND;
    assert_int_equal(rate_reserve(&r, 1100, now), 0);
    assert_int_equal(rate_reserve(&r, 1000, now), NS_PER_SECOND);
}

/* At a slower cap, the debt of a fast one stopped all requests for up to a second. Its burst was sent again. */
static void rate_that_changes_drops_its_debt(void **state)
{
    (void)state;
    struct rate r = {.units_per_second = 1000, .slack_ns = 5 * NS_PER_MS};
    uint64_t now = NS_PER_SECOND;
    rate_reserve(&r, 5, now);
    rate_change(&r, 10, now);
    assert_int_equal(rate_reserve(&r, 1, now), 100 * NS_PER_MS);
    rate_change(&r, 1000, now);
    assert_int_equal(rate_reserve(&r, 1, now), NS_PER_MS);
    rate_change(&r, 0, now);
    assert_int_equal(rate_wait_ns(&r, now), 0);
}

/* Each lane waits with a timer of its own, and all of them ring at once: each sent a request. */
static void of_callers_that_wait_for_the_same_time_one_takes_it(void **state)
{
    (void)state;
    struct rate r = {.units_per_second = 10, .slack_ns = NS_PER_MS};
    uint64_t now = NS_PER_SECOND;
    assert_int_equal(rate_take(&r, 1, now), 0);
    now += rate_take(&r, 1, now);
    assert_int_equal(now, NS_PER_SECOND + 99 * NS_PER_MS);
    assert_int_equal(rate_take(&r, 1, now), 0);
    assert_int_equal(rate_take(&r, 1, now), 100 * NS_PER_MS);
}

static void units_given_back_may_be_taken_at_once(void **state)
{
    (void)state;
    struct rate r = {.units_per_second = 10, .slack_ns = NS_PER_MS};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rate_take(&r, 1, NS_PER_SECOND), 0);
        rate_give_back(&r, 1);
    }
    rate_give_back(&r, 1000);
    assert_int_equal(rate_take(&r, 1, NS_PER_SECOND), 0);
}

static void rate_that_changes_keeps_unused_time(void **state)
{
    (void)state;
    struct rate r = {.units_per_second = 1000, .slack_ns = 5 * NS_PER_MS};
    uint64_t now = NS_PER_SECOND;
    rate_reserve(&r, 1, now);
    now += NS_PER_SECOND;
    rate_change(&r, 2000, now);
    assert_int_equal(rate_reserve(&r, 20, now), 0); /* 5 ms of unused time, and the burst */
    assert_int_equal(rate_reserve(&r, 2, now), NS_PER_MS);
}

static void rate_that_becomes_a_cap_has_no_burst(void **state)
{
    (void)state;
    struct rate r = {.slack_ns = 5 * NS_PER_MS};
    rate_change(&r, 2000, NS_PER_SECOND);
    assert_int_equal(rate_reserve(&r, 20, NS_PER_SECOND), 10 * NS_PER_MS);
}

static unsigned units_taken(struct rate *r, uint64_t now)
{
    unsigned taken = 0;
    while (rate_take(r, 1, now) == 0)
        taken++;
    return taken;
}

static void bucket_allows_a_burst_and_then_the_rate(void **state)
{
    (void)state;
    struct rate r;
    uint64_t now = 1000 * NS_PER_SECOND, start = now;
    rate_init(&r, 10, 3);
    assert_int_equal(units_taken(&r, now), 3);
    for (unsigned taken = 3; taken < 23; taken++) {
        now += rate_take(&r, 1, now);
        assert_int_equal(rate_take(&r, 1, now), 0); /* the wait that it names is enough */
    }
    assert_int_equal(now - start, 2 * NS_PER_SECOND);
}

static void bucket_when_new_and_after_a_pause_allows_only_the_burst(void **state)
{
    (void)state;
    static const unsigned cases[][2] = {{10, 5}, {10, 1}, {1, 1}, {1, 20}, {3, 2}, {7, 4}, {5, 200}, {1000, 2000}};
    for (size_t i = 0; i < countof(cases); i++) {
        struct rate r;
        rate_init(&r, cases[i][0], cases[i][1]);
        assert_int_equal(units_taken(&r, 3600 * NS_PER_SECOND), cases[i][1]);
        assert_int_equal(units_taken(&r, 7200 * NS_PER_SECOND), cases[i][1]);
    }
}

static void bucket_of_one_takes_one_at_each_interval(void **state)
{
    (void)state;
    struct rate r;
    uint64_t now = 1000 * NS_PER_SECOND, start = now;
    rate_init(&r, 10, 1);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(rate_take(&r, 1, now), 0);
        now += rate_take(&r, 1, now);
    }
    assert_in_range(now - start, NS_PER_SECOND - 10, NS_PER_SECOND); /* its least slack is a nanosecond */
}

struct other_lane {
    struct rate *rate;
    _Atomic unsigned reserved;
};

enum { RESERVED_MOST = 3000000 };

static void *reserve_many(void *arg)
{
    struct other_lane *lane = arg;
    for (; atomic_load(&lane->reserved) < RESERVED_MOST; atomic_fetch_add(&lane->reserved, 1))
        rate_reserve(lane->rate, 1, NS_PER_SECOND);
    return NULL;
}

/* One that reserves between the two steps of a change must not leave ten seconds of debt at the old rate. */
static void rate_that_changes_while_others_reserve_leaves_no_debt_of_the_old_one(void **state)
{
    (void)state;
    enum { SLOW = 4000000, FAST = 1000000000 };
    struct rate r = {.units_per_second = FAST, .slack_ns = NS_PER_MS};
    struct other_lane lane = {.rate = &r};
    uint64_t now = NS_PER_SECOND, longest = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, reserve_many, &lane), 0);
    while (atomic_load(&lane.reserved) < RESERVED_MOST) {
        atomic_store(&r.reserved_until_ns, now);
        rate_change(&r, SLOW, now);
        rate_reserve(&r, 10 * SLOW, now);
        rate_change(&r, FAST, now);
        longest = max_u64(longest, rate_wait_ns(&r, now));
    }
    pthread_join(thread, NULL);
    assert_in_range(longest, 0, 5 * NS_PER_SECOND);
}

/* One that gets no core for 700 ms now and then has moved as much in the end as one that always had one. */
static void rate_lets_a_late_thread_catch_up(void **state)
{
    (void)state;
    struct rate r = {.units_per_second = 10000000};
    uint64_t due = 0, moved = 0, now = NS_PER_SECOND;
    for (uint64_t turn = 0; now < 21 * NS_PER_SECOND; turn++) {
        now += turn % 100 == 99 ? 700 * NS_PER_MS : 5 * NS_PER_MS;
        for (int i = 0; i < 100 && due <= now; i++, moved += 16384)
            due = now + rate_reserve(&r, 16384, now);
    }
    assert_in_range(moved, 200000000 * 0.97, 200000000 * 1.03);
}

/* Callers that wait as required move bytes at the cap: within 5 % over ten seconds of simulated time. */
static void rate_of_many_callers_stays_at_the_cap(void **state)
{
    (void)state;
    struct rate r = {.units_per_second = 10000000};
    uint64_t due[16] = {0}, moved = 0;
    for (uint64_t now = NS_PER_SECOND; now < 11 * NS_PER_SECOND; now += NS_PER_MS)
        for (int i = 0; i < 16; i++)
            if (due[i] <= now) {
                moved += 16384;
                due[i] = now + rate_reserve(&r, 16384, now);
            }
    assert_in_range(moved, 95000000, 105000000);
}

static void absurd_numbers_do_not_overflow(void **state)
{
    (void)state;
    struct rate r = {.units_per_second = 1};
    for (int i = 0; i < 100; i++)
        assert_true(rate_reserve(&r, UINT64_MAX, NS_PER_SECOND) > 1000000 * NS_PER_SECOND);
}

static void a_ramp_doubles_in_twenty_minutes_without_a_step(void **state)
{
    (void)state;
    const uint64_t minute = 60 * NS_PER_SECOND;
    assert_int_equal(rate_ramp(5000, 0), 5000);
    assert_int_equal(rate_ramp(5000, 10 * minute), 7500);
    assert_in_range(rate_ramp(5000, 20 * minute - 1), 9999, 10000);
    assert_int_equal(rate_ramp(5000, 20 * minute), 10000);
    assert_int_equal(rate_ramp(5000, 50 * minute), 30000);
    assert_true(rate_ramp(5000, UINT64_MAX) >= rate_ramp(5000, 400 * minute));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_cap_means_no_wait),
        cmocka_unit_test(a_burst_of_a_tenth_of_a_second_is_free),
        cmocka_unit_test(rate_after_a_pause_allows_one_second_more),
        cmocka_unit_test(rate_that_changes_drops_its_debt),
        cmocka_unit_test(of_callers_that_wait_for_the_same_time_one_takes_it),
        cmocka_unit_test(units_given_back_may_be_taken_at_once),
        cmocka_unit_test(rate_that_changes_keeps_unused_time),
        cmocka_unit_test(rate_that_becomes_a_cap_has_no_burst),
        cmocka_unit_test(bucket_allows_a_burst_and_then_the_rate),
        cmocka_unit_test(bucket_when_new_and_after_a_pause_allows_only_the_burst),
        cmocka_unit_test(bucket_of_one_takes_one_at_each_interval),
        cmocka_unit_test(rate_that_changes_while_others_reserve_leaves_no_debt_of_the_old_one),
        cmocka_unit_test(rate_lets_a_late_thread_catch_up),
        cmocka_unit_test(rate_of_many_callers_stays_at_the_cap),
        cmocka_unit_test(a_ramp_doubles_in_twenty_minutes_without_a_step),
        cmocka_unit_test(absurd_numbers_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
