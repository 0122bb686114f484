/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"
#include "unit.h"
#include "util/clock.h"
#include "util/metric.h"

static struct spec spec = {.id = {"v1-0123456789ab-0123456789ab"}};
static const struct volume volume = {.spec = &spec};

static uint64_t hydrated_bytes(void)
{
    return metric_value(metric_series(
        metric_new(METRIC_COUNTER, "cistern_hydration_bytes_total", "", "node,scheme,result", NULL), "n", "s3", "ok"));
}

static uint64_t objects(const char *family, const char *scheme, const char *result)
{
    return metric_value(
        metric_series(metric_new(METRIC_COUNTER, family, "", "node,scheme,result", NULL), "n", scheme, result));
}

static uint64_t ended(const char *result)
{
    return metric_value(metric_series(
        metric_new(METRIC_HISTOGRAM, "cistern_hydration_seconds", "", "scheme,mode,result", metric_buckets_job), "s3",
        "eager", result));
}

static struct hydrate_status run(int64_t started_ns, uint64_t bytes)
{
    return (struct hydrate_status){.phase = HYDRATE_FETCHING,
                                   .source = "s3://bucket/data/",
                                   .objects_done = bytes / 10,
                                   .bytes_done = bytes,
                                   .began_ns = started_ns,
                                   .started_ns = started_ns};
}

static void read_volume(struct transfer_metrics *t, const struct hydrate_status *h, const struct verdict *e)
{
    struct verdict none;
    verdict_init(&none);
    transfer_metrics_begin(t, 0);
    transfer_metrics_add(t, &volume, h, e ? e : &none);
    transfer_metrics_end(t);
}

static void bytes_moved_before_the_first_reading_are_not_counted_again(void **state)
{
    (void)state;
    struct transfer_metrics *t = transfer_metrics_new("n");
    uint64_t before = hydrated_bytes();
    struct hydrate_status h = run(clock_wall_ns() - 3600 * (int64_t)NS_PER_SECOND, 1000);
    read_volume(t, &h, NULL);
    assert_int_equal(hydrated_bytes() - before, 0);
    h.bytes_done = 1500;
    read_volume(t, &h, NULL);
    read_volume(t, &h, NULL);
    assert_int_equal(hydrated_bytes() - before, 500);
    transfer_metrics_free(t);
}

static void a_run_that_began_since_is_counted_whole_and_its_end_once(void **state)
{
    (void)state;
    struct transfer_metrics *t = transfer_metrics_new("n");
    uint64_t bytes = hydrated_bytes(), count = objects("cistern_hydration_objects_total", "s3", "ok"), ok = ended("ok");
    struct hydrate_status h = run(clock_wall_ns() + 1, 1000);
    read_volume(t, &h, NULL);
    h.phase = HYDRATE_DONE;
    h.bytes_done = 2000;
    h.objects_done = 200;
    h.finished_ns = h.started_ns + 5;
    read_volume(t, &h, NULL);
    read_volume(t, &h, NULL);
    assert_int_equal(hydrated_bytes() - bytes, 2000);
    assert_int_equal(objects("cistern_hydration_objects_total", "s3", "ok") - count, 200);
    assert_int_equal(ended("ok") - ok, 1);
    transfer_metrics_free(t);
}

static void resumed_run_counts_only_new_bytes(void **state)
{
    (void)state;
    struct transfer_metrics *t = transfer_metrics_new("n");
    uint64_t bytes = hydrated_bytes(), failed = ended("failed");
    struct hydrate_status h = run(clock_wall_ns() + 1, 1000);
    read_volume(t, &h, NULL);
    h.phase = HYDRATE_FAILED;
    h.finished_ns = h.started_ns + 5;
    read_volume(t, &h, NULL);
    h.phase = HYDRATE_LISTING; /* the next attempt, which has not read its journal yet */
    h.started_ns += 10;
    h.bytes_done = 0;
    read_volume(t, &h, NULL);
    h.bytes_done = 1200;
    read_volume(t, &h, NULL);
    assert_int_equal(hydrated_bytes() - bytes, 1200);
    assert_int_equal(ended("failed") - failed, 1);
    transfer_metrics_free(t);
}

static void an_export_counts_what_the_bucket_confirmed_and_each_failure_of_each_run(void **state)
{
    (void)state;
    struct transfer_metrics *t = transfer_metrics_new("n");
    struct verdict e;
    verdict_init(&e);
    uint64_t ok = objects("cistern_export_objects_total", "gs", "ok");
    uint64_t failed = objects("cistern_export_objects_total", "gs", "failed");
    uint64_t bytes = objects("cistern_export_bytes_total", "gs", "ok");
    e.state = VERDICT_FAILED;
    memcpy(e.uri, "gs://b/", 8);
    e.done_files = 3;
    e.done_bytes = 300;
    e.failed_files = 2;
    e.started_ns = clock_wall_ns() + 1;
    read_volume(t, NULL, &e);
    read_volume(t, NULL, &e);
    e.started_ns++; /* again: what is there is there */
    e.done_files = 4;
    e.done_bytes = 400;
    e.failed_files = 1;
    read_volume(t, NULL, &e);
    assert_int_equal(objects("cistern_export_objects_total", "gs", "ok") - ok, 4);
    assert_int_equal(objects("cistern_export_bytes_total", "gs", "ok") - bytes, 400);
    assert_int_equal(objects("cistern_export_objects_total", "gs", "failed") - failed, 3);
    transfer_metrics_free(t);
}

static void wrong_checksums_are_counted_once(void **state)
{
    (void)state;
    struct transfer_metrics *t = transfer_metrics_new("n");
    struct metric_series *wrong = metric_series(
        metric_new(METRIC_COUNTER, "cistern_verify_failures_total", "", "node,cause", NULL), "n", "checksum");
    uint64_t before = metric_value(wrong);
    struct hydrate_status h = run(clock_wall_ns() + 1, 0);
    h.error_count = 2;
    h.errors[0] = (struct hydrate_fault){.id = CIS_CHECKSUM_MISMATCH, .time_ns = h.started_ns + 1};
    h.errors[1] = (struct hydrate_fault){.id = CIS_REPLY_INVALID, .time_ns = h.started_ns + 2};
    read_volume(t, &h, NULL);
    read_volume(t, &h, NULL);
    assert_int_equal(metric_value(wrong) - before, 1);
    transfer_metrics_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_moved_before_the_first_reading_are_not_counted_again),
        cmocka_unit_test(a_run_that_began_since_is_counted_whole_and_its_end_once),
        cmocka_unit_test(resumed_run_counts_only_new_bytes),
        cmocka_unit_test(an_export_counts_what_the_bucket_confirmed_and_each_failure_of_each_run),
        cmocka_unit_test(wrong_checksums_are_counted_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
