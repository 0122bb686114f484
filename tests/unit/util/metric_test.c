/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/metric.h"
#include <pthread.h>
#include <stdio.h>

static bool page_has(const char *line)
{
    auto_sbuf b;
    sbuf_init(&b, 16 << 20);
    metric_write(&b);
    assert_false(b.overflow);
    return strstr(b.ptr, line) != NULL;
}

static void counters_and_gauges_are_written_with_their_labels(void **state)
{
    (void)state;
    struct metric *m = metric_new(METRIC_COUNTER, "t_requests_total", "Requests.", "scheme, code", NULL);
    metric_add(metric_series(m, "s3", "200"), 2);
    metric_add(metric_series(m, "s3", "200"), 3);
    metric_add(metric_series(m, "gs", "503"), 1);
    struct metric *g = metric_new(METRIC_GAUGE, "t_depth", "Depth.", "", NULL);
    metric_set(metric_series(g), -4);
    assert_int_equal(metric_value(metric_series(m, "s3", "200")), 5);
    assert_true(page_has("# HELP t_requests_total Requests.\n# TYPE t_requests_total counter\n"));
    assert_true(page_has("\nt_requests_total{scheme=\"s3\",code=\"200\"} 5\n"));
    assert_true(page_has("\nt_requests_total{scheme=\"gs\",code=\"503\"} 1\n"));
    assert_true(page_has("# TYPE t_depth gauge\nt_depth -4\n"));
}

static void a_family_is_registered_once(void **state)
{
    (void)state;
    struct metric *m = metric_new(METRIC_COUNTER, "t_once_total", "Once.", "a", NULL);
    assert_ptr_equal(metric_new(METRIC_COUNTER, "t_once_total", "Once.", "a", NULL), m);
    assert_ptr_equal(metric_series(m, "x"), metric_series(m, "x"));
    assert_ptr_not_equal(metric_series(m, "x"), metric_series(m, "y"));
}

static void label_values_are_escaped(void **state)
{
    (void)state;
    struct metric *m = metric_new(METRIC_COUNTER, "t_escaped_total", "Escapes.", "k", NULL);
    metric_add(metric_series(m, "a\"b\\c\nd"), 1);
    metric_add(metric_series(m, "\xff"), 1);
    assert_true(page_has("t_escaped_total{k=\"a\\\"b\\\\c\\nd\"} 1\n"));
    assert_true(page_has("t_escaped_total{k=\"?\"} 1\n"));
}

static void histogram_bucket_counts_values_up_to_its_bound(void **state)
{
    (void)state;
    static const double bounds[] = {0.1, 1, 10, 0};
    struct metric *m = metric_new(METRIC_HISTOGRAM, "t_seconds", "Time.", "op", bounds);
    struct metric_series *s = metric_series(m, "get");
    metric_observe(s, 0.1);
    metric_observe(s, 0.5);
    metric_observe(s, 99);
    assert_true(page_has("t_seconds_bucket{op=\"get\",le=\"0.1\"} 1\nt_seconds_bucket{op=\"get\",le=\"1\"} 2\n"));
    assert_true(page_has("t_seconds_bucket{op=\"get\",le=\"10\"} 2\nt_seconds_bucket{op=\"get\",le=\"+Inf\"} 3\n"
                         "t_seconds_sum{op=\"get\"} 99.6\nt_seconds_count{op=\"get\"} 3\n"));
}

static void histogram_merges_the_values_of_another_process(void **state)
{
    (void)state;
    static const double bounds[] = {0.1, 1, 0};
    struct metric_series *s = metric_series(metric_new(METRIC_HISTOGRAM, "t_theirs", "Time.", "", bounds));
    metric_observe(s, 0.5);
    metric_observe_many(s, (const uint64_t[]){3, 2}, 4, 50.25);
    assert_true(page_has("t_theirs_bucket{le=\"0.1\"} 3\nt_theirs_bucket{le=\"1\"} 6\n"
                         "t_theirs_bucket{le=\"+Inf\"} 10\nt_theirs_sum 50.75\nt_theirs_count 10\n"));
}

static void series_beyond_the_limit_share_one(void **state)
{
    (void)state;
    struct metric *m = metric_new(METRIC_COUNTER, "t_many_total", "Many.", "k", NULL);
    char value[16];
    for (unsigned i = 0; i < 1200; i++) {
        snprintf(value, sizeof value, "%u", i);
        metric_add(metric_series(m, value), 1);
    }
    assert_int_equal(metric_value(metric_series(m, "other one")), 200);
    assert_int_equal(metric_value(metric_series(m, "999")), 1);
    assert_true(page_has("t_many_total{k=\"other\"} 200\n"));
}

static void *add_often(void *series)
{
    for (unsigned i = 0; i < 10000; i++) {
        metric_add(series, 1);
        auto_sbuf b;
        sbuf_init(&b, 1 << 20);
        if (i % 1000 == 0)
            metric_write(&b);
    }
    return NULL;
}

static void threads_add_without_losing_any(void **state)
{
    (void)state;
    struct metric_series *s = metric_series(metric_new(METRIC_COUNTER, "t_threads_total", "Threads.", "", NULL));
    pthread_t threads[4];
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_often, s), 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(metric_value(s), 40000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_and_gauges_are_written_with_their_labels),
        cmocka_unit_test(a_family_is_registered_once),
        cmocka_unit_test(label_values_are_escaped),
        cmocka_unit_test(histogram_bucket_counts_values_up_to_its_bound),
        cmocka_unit_test(histogram_merges_the_values_of_another_process),
        cmocka_unit_test(series_beyond_the_limit_share_one),
        cmocka_unit_test(threads_add_without_losing_any),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
