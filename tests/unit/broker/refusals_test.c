/* SPDX-License-Identifier: Apache-2.0 */
#include "refusals.h"
#include "unit.h"
#include "util/clock.h"

static const uint64_t start = 1000 * NS_PER_SECOND;

static void ten_refusals_are_borne_and_the_eleventh_waits(void **state)
{
    (void)state;
    struct refusals r;
    refusals_init(&r);
    for (int i = 0; i < REFUSALS_BURST; i++) {
        assert_int_equal(refusals_wait(&r, STR("a"), start), 0);
        refusals_add(&r, STR("a"), start);
    }
    assert_int_equal(refusals_wait(&r, STR("a"), start), 0);
    refusals_add(&r, STR("a"), start);
    assert_true(refusals_wait(&r, STR("a"), start) > 0);
    assert_int_equal(refusals_wait(&r, STR("b"), start), 0);
    refusals_done(&r);
}

static void time_pays_for_refusals(void **state)
{
    (void)state;
    struct refusals r;
    refusals_init(&r);
    for (int i = 0; i < REFUSALS_BURST + 3; i++)
        refusals_add(&r, STR("a"), start);
    unsigned wait = refusals_wait(&r, STR("a"), start);
    assert_true(wait > 3 * REFUSALS_SECONDS - 1 && wait < 3 * REFUSALS_SECONDS + 2);
    assert_int_equal(refusals_wait(&r, STR("a"), start + wait * NS_PER_SECOND), 0);
    refusals_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_refusals_are_borne_and_the_eleventh_waits),
        cmocka_unit_test(time_pays_for_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
