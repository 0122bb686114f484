/* SPDX-License-Identifier: Apache-2.0 */
#include "bucket.h"
#include "unit.h"
#include "util/clock.h"

static void a_burst_goes_at_once_and_then_so_many_a_second(void **state)
{
    (void)state;
    struct bucket b;
    uint64_t now = 1000 * NS_PER_SECOND, start = now;
    unsigned sent = 0;
    bucket_init(&b, 10, 3);
    while (bucket_take(&b, now) == 0)
        sent++;
    assert_int_equal(sent, 3);
    for (; sent < 23; sent++) {
        uint64_t wait = bucket_take(&b, now);
        if (wait == 0)
            continue;
        now += wait;
        assert_int_equal(bucket_take(&b, now), 0); /* the wait that it names is enough */
    }
    assert_int_equal(now - start, 2 * NS_PER_SECOND);
}

static void a_rest_saves_up_no_more_than_the_burst(void **state)
{
    (void)state;
    struct bucket b;
    unsigned sent = 0;
    bucket_init(&b, 10, 5);
    while (bucket_take(&b, 3600 * NS_PER_SECOND) == 0)
        sent++;
    assert_int_equal(sent, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_goes_at_once_and_then_so_many_a_second),
        cmocka_unit_test(a_rest_saves_up_no_more_than_the_burst),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
