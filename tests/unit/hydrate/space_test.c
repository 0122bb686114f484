/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

static int setup(void **state)
{
    int r = run_setup(state);
    run->space.block_bytes = 4096;
    run->space.free_bytes = 100 * 4096;
    run->space.free_files = 10;
    run->o.size_check = true;
    return r;
}

static void an_object_takes_whole_blocks_and_a_file(void **state)
{
    (void)state;
    hydrate_space_count(run, 1);
    hydrate_space_count(run, 4096);
    hydrate_space_count(run, 4097);
    hydrate_space_count(run, 0);
    assert_int_equal(run->space.need_bytes, 4 * 4096);
    assert_int_equal(run->space.need_files, 4);
}

static void source_that_does_not_fit_is_reported_with_the_free_space(void **state)
{
    (void)state;
    struct err err;
    hydrate_space_count(run, 100 * 4096);
    assert_int_equal(hydrate_space_check(run, &err), 0);
    hydrate_space_count(run, 1);
    assert_true(run->space.is_exceeded);
    hydrate_space_count(run, 96 * 4096); /* the listing goes on */
    assert_int_equal(hydrate_space_check(run, &err), -ERR_NO_SPACE);
    assert_int_equal(err.id, 1510);
    assert_string_equal(err.text, "'s3://bucket/prefix/' does not fit: 3 objects need 788 KiB, 400 KiB are free");
}

static void more_objects_than_the_file_system_has_files_do_not_fit_either(void **state)
{
    (void)state;
    struct err err;
    for (int i = 0; i < 10; i++)
        hydrate_space_count(run, 0);
    assert_int_equal(hydrate_space_check(run, &err), 0);
    hydrate_space_count(run, 0);
    assert_int_equal(hydrate_space_check(run, &err), -ERR_NO_SPACE);
    assert_non_null(strstr(err.text, "11 objects, the file system has room for 10 files"));
}

static void a_listing_that_lies_does_not_begin_at_nothing_again(void **state)
{
    (void)state;
    hydrate_space_count(run, UINT64_MAX);
    assert_true(run->space.need_bytes == UINT64_MAX);
    run->space.need_bytes = UINT64_MAX - 4096;
    hydrate_space_count(run, 8192);
    assert_true(run->space.need_bytes == UINT64_MAX);
}

static void without_the_check_all_is_counted_and_nothing_refused(void **state)
{
    (void)state;
    struct err err;
    run->o.size_check = false;
    hydrate_space_count(run, 1000 * 4096);
    assert_int_equal(hydrate_space_check(run, &err), 0);
    assert_int_equal(run->space.need_bytes, 1000 * 4096);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, run_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_object_takes_whole_blocks_and_a_file),
        TEST(source_that_does_not_fit_is_reported_with_the_free_space),
        TEST(more_objects_than_the_file_system_has_files_do_not_fit_either),
        TEST(a_listing_that_lies_does_not_begin_at_nothing_again),
        TEST(without_the_check_all_is_counted_and_nothing_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
