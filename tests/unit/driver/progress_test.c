/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "hydrate/status.h"
#include "private.h"

static struct spec spec = {.id = {"v1-0123456789ab-0123456789ab"}};
static struct volume volume = {.spec = &spec};
static char text[HEALTH_TEXT_MAX];
static bool failed;

static int setup(void **state)
{
    int r = folder_setup(state);
    spec.source.uri.text = (char *)"s3://bucket/data/";
    spec.params.hydration = HYDRATION_EAGER;
    volume.dir = dir;
    memset(text, 0, sizeof text);
    return r;
}

static bool is_whole_with(const struct hydrate_status *s)
{
    struct err err;
    if (s)
        assert_int_equal(hydrate_status_write(dir, s, &err), 0);
    return volume_read_progress(&volume, text, &failed);
}

static void volume_without_source_is_complete(void **state)
{
    (void)state;
    spec.source.uri.text = NULL;
    assert_true(is_whole_with(NULL));
    spec.source.uri.text = (char *)"s3://bucket/data/";
    spec.params.hydration = HYDRATION_NONE;
    assert_true(is_whole_with(NULL));
}

static void hydration_without_status_is_starting(void **state)
{
    (void)state;
    assert_false(is_whole_with(NULL));
    assert_string_equal(text, "hydration has not started");
    assert_false(failed);
}

static void one_at_work_says_how_far_it_is_and_how_long_it_will_be(void **state)
{
    (void)state;
    static struct hydrate_status s = {.phase = HYDRATE_FETCHING,
                                      .bytes_done = 61 << 20,
                                      .bytes_total = 100 << 20,
                                      .objects_done = 3,
                                      .objects_total = 9,
                                      .bytes_per_second = 2 << 20,
                                      .eta_seconds = 20};
    assert_false(is_whole_with(&s));
    assert_non_null(strstr(text, "61% ("));
    assert_non_null(strstr(text, "3/9 objects"));
    assert_non_null(strstr(text, "20.0 s left"));
    s.eta_seconds = UINT64_MAX; /* unknown */
    assert_false(is_whole_with(&s));
    assert_null(strstr(text, "left"));
    s.bytes_total = s.bytes_done = 0; /* nothing is listed yet */
    assert_false(is_whole_with(&s));
    assert_non_null(strstr(text, "0% ("));
    assert_false(failed);
}

static void one_that_failed_says_why_and_one_that_is_done_is_whole(void **state)
{
    (void)state;
    static struct hydrate_status s = {.phase = HYDRATE_FAILED, .has_error = true, .error = {.message = "403 of x"}};
    assert_false(is_whole_with(&s));
    assert_string_equal(text, "403 of x");
    assert_true(failed);
    s.phase = HYDRATE_DONE;
    assert_true(is_whole_with(&s));
    assert_false(failed);
}

static void a_status_that_is_damaged_is_not_taken_for_done(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(file_replace(dir, HYDRATE_STATUS_FILE, STR("{\"phase\":"), 0644, &err), 0);
    assert_false(is_whole_with(NULL));
    assert_non_null(strstr(text, HYDRATE_STATUS_FILE));
    assert_false(failed);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(volume_without_source_is_complete),
        TEST(hydration_without_status_is_starting),
        TEST(one_at_work_says_how_far_it_is_and_how_long_it_will_be),
        TEST(one_that_failed_says_why_and_one_that_is_done_is_whole),
        TEST(a_status_that_is_damaged_is_not_taken_for_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
