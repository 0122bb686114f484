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

static void two_buckets_give_a_token_each_or_none(void **state)
{
    (void)state;
    struct token_bucket small, large;
    uint64_t now = 1000 * NS_PER_SECOND;
    token_bucket_init(&small, 1, 1);
    token_bucket_init(&large, 10, 3);
    assert_int_equal(token_bucket_take_both(&small, &large, now), 0);
    /* Neither order loses a token of the bucket that has some. */
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(token_bucket_take_both(&small, &large, now), NS_PER_SECOND);
        assert_int_equal(token_bucket_take_both(&large, &small, now), NS_PER_SECOND);
    }
    assert_int_equal(token_bucket_take(&large, now), 0);
    assert_int_equal(token_bucket_take(&large, now), 0);
    assert_int_not_equal(token_bucket_take(&large, now), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bucket_allows_a_burst_and_then_the_rate),
        cmocka_unit_test(bucket_after_a_pause_allows_only_the_burst),
        cmocka_unit_test(two_buckets_give_a_token_each_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
