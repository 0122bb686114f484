/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/clock.h"
#include <limits.h>

static void times_of_rfc_3339_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ns;
    } good[] = {{"1970-01-01T00:00:00Z", 0},
                {"2026-11-21T09:30:00.123Z", 1795253400123000000},
                {"2026-11-21T10:30:00.123+01:00", 1795253400123000000},
                {"2026-11-21t09:30:00.123000000z", 1795253400123000000},
                {"1969-12-31T23:59:59.5Z", -500000000}};
    static const char *const bad[] = {"",
                                      "2026-11-21",
                                      "2026-13-21T09:30:00Z",
                                      "2026-11-21T09:30:00",
                                      "2026-11-21T25:30:00Z",
                                      "2026-11-21T09:30:00Zx",
                                      "2026-11-00T09:30:00Z",
                                      "2026-11-31T09:30:00Z",
                                      "2026-02-29T09:30:00Z",
                                      "2100-02-29T09:30:00Z"};
    struct err err;
    int64_t ns;
    for (size_t i = 0; i < countof(good); i++) {
        assert_int_equal(time_parse(str_of(good[i].text), &ns, &err), 0);
        assert_int_equal(ns, good[i].ns);
    }
    for (size_t i = 0; i < countof(bad); i++)
        assert_int_equal(time_parse(str_of(bad[i]), &ns, &err), -ERR_INVALID);
}

static void difference_of_any_two_times_does_not_overflow(void **state)
{
    (void)state;
    struct err err;
    int64_t first, last;
    assert_int_equal(time_parse(STR("1823-11-12T00:06:23Z"), &first, &err), 0);
    assert_int_equal(time_parse(STR("2116-02-20T23:53:37.999999999Z"), &last, &err), 0);
    assert_true(last - first > 0 && first - last < 0);
    static const char *const beyond[] = {"0001-01-01T00:00:00Z", "1823-11-12T00:06:21Z", "2116-02-20T23:53:38Z",
                                         "9999-12-31T23:59:59Z"};
    for (size_t i = 0; i < countof(beyond); i++)
        assert_int_equal(time_parse(str_of(beyond[i]), &last, &err), -ERR_RANGE);
    assert_false(time_parse_http(STR("Sat, 21 Nov 1700 09:30:00 GMT"), &last));
    assert_int_equal(time_from_spec((struct timespec){1, 5}), 1000000005);
    assert_true(time_from_spec((struct timespec){INT64_MAX, 0}) - time_from_spec((struct timespec){INT64_MIN, 0}) > 0);
}

static void http_dates_are_read(void **state)
{
    (void)state;
    int64_t ns;
    assert_true(time_parse_http(STR("Sat, 21 Nov 2026 09:30:00 GMT"), &ns));
    assert_int_equal(ns, 1795253400000000000);
    assert_true(time_parse_http(STR("Sun, 29 Feb 2032 23:59:60 GMT"), &ns));
    static const char *const bad[] = {"",
                                      "Sat",
                                      "Sat, 21 Nox 2026 09:30:00 GMT",
                                      "xxxxx21 Nov 2026 09:30:00 GMT",
                                      "Sut, 21 Nov 2026 09:30:00 GMT",
                                      "sat, 21 Nov 2026 09:30:00 GMT",
                                      "Sat,  21 Nov 2026 09:30:00 GMT",
                                      "Sat, 21 nov 2026 09:30:00 GMT",
                                      "Sat, 21 November 2026 09:30:00 GMT",
                                      "Sat, 1 Nov 2026 09:30:00 GMT",
                                      "Sat, 21  Nov 2026 09:30:00 GMT",
                                      "Sat, 21Nov2026 09:30:00 GMT",
                                      "Sat, 21 Nov 20260 9:30:00 GMT",
                                      "Sat, 21 Nov 226 09:30:00 GMT",
                                      "Sat, 21 Nov 2026 9:30:00 GMT",
                                      "Sat, 21 Nov 2026 09: 30:00 GMT",
                                      "Sat, 21 Nov 2026 09:30:00GMT",
                                      "Sat, 21 Nov 2026 09:30:00  GMT",
                                      "Sat, 21 Nov 2026 09:30:00 GMT ",
                                      "Sat, 21 Nov 2026 09:30:00 UTC",
                                      "Sat, 21 Nov 2026 24:30:00 GMT",
                                      "Sat, 21 Nov 2026 09:60:00 GMT",
                                      "Sat, 21 Nov 2026 09:30:61 GMT",
                                      "Sat, 00 Nov 2026 09:30:00 GMT",
                                      "Sat, 31 Nov 2026 09:30:00 GMT",
                                      "Sun, 29 Feb 2026 09:30:00 GMT",
                                      "Sat, 21-Nov-2026 09:30:00 GMT",
                                      "2026-11-21T09:30:00Z"};
    for (size_t i = 0; i < countof(bad); i++)
        if (time_parse_http(str_of(bad[i]), &ns))
            fail_msg("accepted: '%s'", bad[i]);
}

static void times_and_spans_are_written_for_people(void **state)
{
    (void)state;
    char buf[TIME_TEXT_MAX];
    assert_string_equal(time_text(1795253400123000000, buf), "2026-11-21T09:30:00.123Z");
    assert_string_equal(time_text(-500000000, buf), "1969-12-31T23:59:59.500Z");
    assert_string_equal(duration_text(350 * NS_PER_MS, buf), "350 ms");
    assert_string_equal(duration_text(12 * NS_PER_SECOND, buf), "12.0 s");
    assert_string_equal(duration_text(125 * NS_PER_SECOND, buf), "2 min 05 s");
    assert_string_equal(duration_text(7500 * NS_PER_SECOND, buf), "2 h 05 min");
}

static void backoff_grows_to_its_cap(void **state)
{
    (void)state;
    uint64_t longest[6] = {0};
    for (unsigned attempt = 1; attempt <= 6; attempt++)
        for (int i = 0; i < 2000; i++)
            longest[attempt - 1] = max_u64(longest[attempt - 1], clock_backoff_ns(attempt, 1000, 8000));
    for (unsigned i = 0; i < 6; i++) {
        uint64_t ceiling = min_u64(1000ULL << i, 8000);
        assert_true(longest[i] <= ceiling);
        assert_true(longest[i] > ceiling * 9 / 10);
    }
    assert_int_equal(clock_backoff_ns(70, 0, 0), 0);
}

static void backoff_half_stays_between_half_and_all_of_its_cap(void **state)
{
    (void)state;
    uint64_t least = UINT64_MAX, most = 0;
    for (int i = 0; i < 2000; i++) {
        uint64_t wait = clock_backoff_half_ns(3, 1000, 8000);
        least = min_u64(least, wait);
        most = max_u64(most, wait);
    }
    assert_in_range(least, 2000, 2200);
    assert_in_range(most, 3800, 4000);
    assert_int_equal(clock_backoff_half_ns(0, 0, 0), 0);
}

static void doubled_stops_at_its_cap(void **state)
{
    (void)state;
    assert_int_equal(clock_doubled_ns(0, 20, 1000), 20);
    assert_int_equal(clock_doubled_ns(5, 20, 1000), 640);
    assert_int_equal(clock_doubled_ns(6, 20, 1000), 1000);
    assert_int_equal(clock_doubled_ns(0, 2000, 1000), 1000);
    assert_int_equal(clock_doubled_ns(UINT_MAX, 1, UINT64_MAX), UINT64_MAX);
    assert_int_equal(clock_doubled_ns(UINT_MAX, 0, 1000), 0);
}

static void month_begins_as_timegm_has_it(void **state)
{
    (void)state;
    for (int year = 1824; year < 2116; year++)
        for (int month = 1; month <= 12; month++) {
            char text[32];
            int64_t ns;
            struct err err;
            struct tm tm = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = 28, .tm_hour = 23, .tm_sec = 59};
            snprintf(text, sizeof text, "%04d-%02d-28T23:00:59Z", year, month);
            assert_int_equal(time_parse(str_of(text), &ns, &err), 0);
            assert_int_equal(ns, (int64_t)timegm(&tm) * 1000000000);
        }
}

static void a_time_of_the_kernel_is_one_number_before_1970_too(void **state)
{
    (void)state;
    static const int64_t all[] = {
        0, 1, -1, 999999999, 1000000000, -1000000000, -1000000001, 4611686017999999999, -4611686018000000000};
    for (size_t i = 0; i < countof(all); i++) {
        struct timespec t = time_to_spec(all[i]);
        assert_in_range(t.tv_nsec, 0, 999999999);
        assert_int_equal(time_from_spec(t), all[i]);
    }
    assert_int_equal(time_to_spec(-1).tv_sec, -1);
    assert_int_equal(time_from_spec((struct timespec){.tv_sec = 13569465600}), 4611686017000000000); /* the year 2400 */
    assert_int_equal(time_from_spec((struct timespec){.tv_sec = -13569465600}), -4611686018000000000);
}

static void the_last_time_is_written_and_read(void **state)
{
    (void)state;
    struct err err;
    char text[TIME_TEXT_MAX];
    int64_t last = time_from_spec((struct timespec){.tv_sec = INT64_MAX}), again = 0;
    assert_int_equal(time_parse(str_of(time_text(last, text)), &again, &err), 0);
    assert_int_equal(again, last);
}

static void a_wait_ends_at_its_time(void **state)
{
    (void)state;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    uint64_t until_ns = clock_now_ns() + 20 * NS_PER_MS;
    pthread_mutex_lock(&lock);
    while (clock_cond_wait(&never, &lock, until_ns))
        ;
    assert_true(clock_now_ns() >= until_ns);
    assert_false(clock_cond_wait(&never, &lock, 0));
    pthread_mutex_unlock(&lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_of_rfc_3339_are_read),
        cmocka_unit_test(month_begins_as_timegm_has_it),
        cmocka_unit_test(difference_of_any_two_times_does_not_overflow),
        cmocka_unit_test(http_dates_are_read),
        cmocka_unit_test(times_and_spans_are_written_for_people),
        cmocka_unit_test(a_time_of_the_kernel_is_one_number_before_1970_too),
        cmocka_unit_test(the_last_time_is_written_and_read),
        cmocka_unit_test(a_wait_ends_at_its_time),
        cmocka_unit_test(backoff_grows_to_its_cap),
        cmocka_unit_test(backoff_half_stays_between_half_and_all_of_its_cap),
        cmocka_unit_test(doubled_stops_at_its_cap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
