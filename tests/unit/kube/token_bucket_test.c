/* SPDX-License-Identifier: Apache-2.0 */
#include "token_bucket.h"
#include "unit.h"
#include "util/clock.h"

static void bucket_allows_a_burst_and_then_the_rate(void **state)
{
    (void)state;
    struct token_bucket b;
    uint64_t now = 1000 * NS_PER_SECOND, start = now;
    unsigned sent = 0;
    token_bucket_init(&b, 10, 3);
    while (token_bucket_take(&b, now) == 0)
        sent++;
    assert_int_equal(sent, 3);
    for (; sent < 23; sent++) {
        uint64_t wait = token_bucket_take(&b, now);
        if (wait == 0)
            continue;
        now += wait;
        assert_int_equal(token_bucket_take(&b, now), 0); /* the wait that it names is enough */
    }
    assert_int_equal(now - start, 2 * NS_PER_SECOND);
}

static void bucket_after_a_pause_allows_only_the_burst(void **state)
{
    (void)state;
    struct token_bucket b;
    unsigned sent = 0;
    token_bucket_init(&b, 10, 5);
    while (token_bucket_take(&b, 3600 * NS_PER_SECOND) == 0)
        sent++;
    assert_int_equal(sent, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bucket_allows_a_burst_and_then_the_rate),
        cmocka_unit_test(bucket_after_a_pause_allows_only_the_burst),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
