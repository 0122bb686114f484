/* SPDX-License-Identifier: Apache-2.0 */
#include "register.h"
#include "unit.h"
#include "util/clock.h"

#define SECONDS(n) ((uint64_t)(n)*NS_PER_SECOND)

static void an_empty_place_is_taken_at_once_and_a_live_one_never(void **state)
{
    (void)state;
    struct registration_view v = {.place = PLACE_EMPTY};
    assert_true(registration_is_due(&v));
    v = (struct registration_view){.place = PLACE_LIVE, .quiet_ns = SECONDS(86400)};
    assert_false(registration_is_due(&v));
}

static void a_dead_one_is_left_alone_while_the_kubelet_calls(void **state)
{
    (void)state;
    struct registration_view v = {
        .place = PLACE_DEAD, .confirmed = CONFIRMED_ONCE, .was_called = true, .quiet_ns = SECONDS(9)};
    assert_false(registration_is_due(&v));
    v.quiet_ns = SECONDS(11);
    assert_true(registration_is_due(&v));
}

static void a_dead_one_found_at_the_start_waits_only_for_a_first_call(void **state)
{
    (void)state;
    struct registration_view v = {.place = PLACE_DEAD, .confirmed = CONFIRMED_ONCE, .quiet_ns = SECONDS(1)};
    assert_false(registration_is_due(&v));
    v.quiet_ns = SECONDS(4);
    assert_true(registration_is_due(&v));
}

static void a_dead_one_that_the_kubelet_has_confirmed_is_kept_and_one_that_it_has_not_is_replaced_at_once(void **state)
{
    (void)state;
    struct registration_view v = {
        .place = PLACE_DEAD, .confirmed = CONFIRMED_YES, .was_called = true, .quiet_ns = SECONDS(179)};
    assert_false(registration_is_due(&v));
    v.quiet_ns = SECONDS(181); /* it has no volume here: a renewal loses no call */
    assert_true(registration_is_due(&v));
    v.confirmed = CONFIRMED_NO;
    v.quiet_ns = 0;
    assert_true(registration_is_due(&v));
    v.place = PLACE_LIVE;
    assert_false(registration_is_due(&v));
}

static void a_confirmation_of_a_dead_registration_counts_while_its_kubelet_runs(void **state)
{
    (void)state;
    enum { FIRST = 100, SECOND = 200 };
    static const struct {
        enum registration_place place;
        int64_t by, running;
        enum registration_confirmed confirmed;
    } cases[] = {{PLACE_DEAD, FIRST, FIRST, CONFIRMED_YES},
                 {PLACE_DEAD, FIRST, SECOND, CONFIRMED_NO},
                 {PLACE_DEAD, SECOND, FIRST, CONFIRMED_NO}, /* the clock was set back */
                 {PLACE_DEAD, FIRST, REGISTRATION_UNSEEN, CONFIRMED_ONCE},
                 {PLACE_DEAD, REGISTRATION_UNSEEN, REGISTRATION_UNSEEN, CONFIRMED_ONCE},
                 {PLACE_DEAD, REGISTRATION_UNSEEN, FIRST, CONFIRMED_NO},
                 {PLACE_DEAD, REGISTRATION_UNCONFIRMED, FIRST, CONFIRMED_NO},
                 {PLACE_OURS, REGISTRATION_UNCONFIRMED, FIRST, CONFIRMED_NO},
                 {PLACE_OURS, FIRST, FIRST, CONFIRMED_YES},
                 {PLACE_OURS, FIRST, SECOND, CONFIRMED_YES}, /* it asks by itself */
                 {PLACE_OURS, FIRST, REGISTRATION_UNSEEN, CONFIRMED_YES}};
    for (size_t i = 0; i < countof(cases); i++)
        assert_int_equal(registration_confirmation(cases[i].place, cases[i].by, cases[i].running), cases[i].confirmed);
}

static void an_own_registration_that_the_kubelet_never_confirms_is_renewed_while_it_does_not_call(void **state)
{
    (void)state;
    struct registration_view v = {.place = PLACE_OURS, .quiet_ns = SECONDS(86400), .published_ns = SECONDS(179)};
    assert_false(registration_is_due(&v));
    v.published_ns = SECONDS(181);
    assert_true(registration_is_due(&v));
    v.quiet_ns = SECONDS(179);
    assert_false(registration_is_due(&v));
    v.quiet_ns = v.published_ns = SECONDS(86400);
    v.confirmed = CONFIRMED_YES;
    assert_false(registration_is_due(&v));
    v.confirmed = CONFIRMED_ONCE;
    assert_false(registration_is_due(&v));
}

static void an_own_registration_is_renewed_after_a_refusal_and_later_each_time(void **state)
{
    (void)state;
    struct registration_view v = {.place = PLACE_OURS, .refused = true, .refusals = 1, .published_ns = SECONDS(1)};
    assert_false(registration_is_due(&v));
    v.published_ns = SECONDS(3);
    assert_true(registration_is_due(&v));
    v.refusals = 4;
    assert_false(registration_is_due(&v));
    v.published_ns = SECONDS(17);
    assert_true(registration_is_due(&v));
    v.refusals = 1000;
    v.published_ns = SECONDS(121);
    assert_true(registration_is_due(&v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_place_is_taken_at_once_and_a_live_one_never),
        cmocka_unit_test(a_dead_one_is_left_alone_while_the_kubelet_calls),
        cmocka_unit_test(a_dead_one_found_at_the_start_waits_only_for_a_first_call),
        cmocka_unit_test(a_dead_one_that_the_kubelet_has_confirmed_is_kept_and_one_that_it_has_not_is_replaced_at_once),
        cmocka_unit_test(a_confirmation_of_a_dead_registration_counts_while_its_kubelet_runs),
        cmocka_unit_test(an_own_registration_that_the_kubelet_never_confirms_is_renewed_while_it_does_not_call),
        cmocka_unit_test(an_own_registration_is_renewed_after_a_refusal_and_later_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
