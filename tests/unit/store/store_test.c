/* SPDX-License-Identifier: Apache-2.0 */
#include "backend.h"
#include "unit.h"
#include "util/clock.h"

static struct store *open_with(struct store_retry retry)
{
    struct store *s;
    struct err err;
    assert_int_equal(store_open(&(struct store_options){.uri = STR("file:///tmp/"), .retry = retry}, &s, &err), 0);
    return s;
}

static void only_what_may_pass_is_tried_again(void **state)
{
    auto_store s = open_with((struct store_retry){0});
    uint64_t delay;
    (void)state;
    assert_false(store_retry_delay(s, &(struct store_reply){.code = 0, .may_retry = true}, 1, 0, &delay));
    assert_false(store_retry_delay(s, &(struct store_reply){.code = -ERR_DENIED}, 1, 0, &delay));
    assert_true(store_retry_delay(s, &(struct store_reply){.code = -ERR_IO, .may_retry = true}, 1, 0, &delay));
}

static void attempts_and_time_have_an_end(void **state)
{
    auto_store s = open_with((struct store_retry){.attempts_max = 3, .elapsed_max_ns = NS_PER_SECOND});
    const struct store_reply r = {.code = -ERR_AGAIN, .may_retry = true};
    uint64_t delay;
    (void)state;
    assert_true(store_retry_delay(s, &r, 2, 0, &delay));
    assert_false(store_retry_delay(s, &r, 3, 0, &delay));
    assert_false(store_retry_delay(s, &r, 1, NS_PER_SECOND + 1, &delay));
}

static void refused_connection_uses_no_attempt(void **state)
{
    auto_store s = open_with((struct store_retry){.attempts_max = 1, .elapsed_max_ns = NS_PER_MS});
    const struct store_reply r = {.code = -ERR_IO, .may_retry = true, .turned_away = true};
    uint64_t delay;
    (void)state;
    for (unsigned attempts = 0; attempts < 100; attempts += 33) {
        assert_true(store_retry_delay(s, &r, attempts, NS_PER_SECOND, &delay));
        assert_true(delay > 0);
    }
    assert_true(store_retry_delay(s, &r, 0, 0, &delay));
    assert_true(delay <= NS_PER_SECOND / 4);
}

static void the_delay_is_jittered_below_its_cap_and_not_below_what_the_store_asked(void **state)
{
    auto_store s = open_with((struct store_retry){.backoff_base_ns = 100 * NS_PER_MS, .backoff_cap_ns = NS_PER_SECOND});
    struct store_reply r = {.code = -ERR_AGAIN, .may_retry = true};
    uint64_t delay, least = UINT64_MAX, most = 0;
    (void)state;
    for (int i = 0; i < 200; i++) {
        assert_true(store_retry_delay(s, &r, 7, 0, &delay));
        least = min_u64(least, delay);
        most = max_u64(most, delay);
    }
    assert_true(most <= NS_PER_SECOND);
    assert_true(least >= NS_PER_SECOND / 2); /* or attempts could be used up within seconds */
    assert_true(least < most * 3 / 4);
    r.retry_after_ns = 5 * NS_PER_SECOND;
    assert_true(store_retry_delay(s, &r, 1, 0, &delay));
    assert_int_equal(delay, 5 * NS_PER_SECOND);
}

/* The others had succeeded after its first failure, so five minutes went by without a word. */
static void long_wait_is_shown_when_nothing_else_succeeds_any_more(void **state)
{
    auto_store s = open_with((struct store_retry){0});
    struct store_reply r = {.code = -ERR_AGAIN, .may_retry = true, .retry_after_ns = 300 * NS_PER_SECOND};
    uint64_t delay;
    char text[300];
    (void)state;
    assert_true(store_retry_delay(s, &r, 1, 0, &delay));
    atomic_store(&s->success_ns, clock_now_ns());
    assert_false(store_retrying(s, text, sizeof text));
    s->again.since_ns = clock_now_ns() - 9 * NS_PER_SECOND;
    atomic_store(&s->success_ns, clock_now_ns() - 3 * NS_PER_SECOND);
    assert_true(store_retrying(s, text, sizeof text));
    assert_non_null(strstr(text, "attempt 2 of 8 in"));
}

static void store_returns_the_parts_of_its_uri(void **state)
{
    struct err err;
    struct store *s;
    (void)state;
    const struct store_options o = {
        .uri = STR("s3://bucket/a/b/"), .endpoint = "http://127.0.0.1:1", .auth = STORE_AUTH_ANONYMOUS};
    assert_int_equal(store_open(&o, &s, &err), 0);
    assert_string_equal(store_scheme(s), "s3");
    assert_true(str_eq(store_bucket(s), STR("bucket")));
    assert_true(str_eq(store_prefix(s), STR("a/b/")));
    assert_int_equal(store_caps(s)->upload_digest, HASH_CRC64NVME);
    store_free(s);
}

static void invalid_options_are_reported_and_nothing_leaks(void **state)
{
    static const struct {
        struct store_options o;
        unsigned id;
    } bad[] = {
        {{.uri = STR("s3://bucket/"), .endpoint = "127.0.0.1", .auth = STORE_AUTH_ANONYMOUS}, 1002},
        {{.uri = STR("s3://bucket/"), .region = "EU West", .auth = STORE_AUTH_ANONYMOUS}, 1002},
        {{.uri = STR("gs://bucket/"), .endpoint = "x", .auth = STORE_AUTH_ANONYMOUS}, 1002},
        {{.uri = STR("bucket/")}, 1001},
    };
    (void)state;
    for (size_t i = 0; i < countof(bad); i++) {
        struct store *s = NULL;
        struct err err;
        assert_int_equal(store_open(&bad[i].o, &s, &err), -ERR_INVALID);
        assert_int_equal(err.id, bad[i].id);
        assert_null(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_may_pass_is_tried_again),
        cmocka_unit_test(attempts_and_time_have_an_end),
        cmocka_unit_test(refused_connection_uses_no_attempt),
        cmocka_unit_test(the_delay_is_jittered_below_its_cap_and_not_below_what_the_store_asked),
        cmocka_unit_test(long_wait_is_shown_when_nothing_else_succeeds_any_more),
        cmocka_unit_test(store_returns_the_parts_of_its_uri),
        cmocka_unit_test(invalid_options_are_reported_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
