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
    space_reserve(run, 1);
    space_reserve(run, 4096);
    space_reserve(run, 4097);
    space_reserve(run, 0);
    assert_int_equal(run->space.need_bytes, 4 * 4096);
    assert_int_equal(run->space.need_files, 4);
}

static void source_that_does_not_fit_is_reported_with_the_free_space(void **state)
{
    (void)state;
    struct err err;
    space_reserve(run, 100 * 4096);
    assert_int_equal(space_check(run, &err), 0);
    space_reserve(run, 1);
    assert_true(run->space.is_exceeded);
    space_reserve(run, 96 * 4096); /* the listing goes on */
    assert_int_equal(space_check(run, &err), -ERR_NO_SPACE);
    assert_int_equal(err.id, 1510);
    assert_string_equal(err.text, "'s3://bucket/prefix/' does not fit: 3 objects need 788 KiB, 400 KiB are free");
}

static void more_objects_than_the_file_system_has_files_do_not_fit_either(void **state)
{
    (void)state;
    struct err err;
    for (int i = 0; i < 10; i++)
        space_reserve(run, 0);
    assert_int_equal(space_check(run, &err), 0);
    space_reserve(run, 0);
    assert_int_equal(space_check(run, &err), -ERR_NO_SPACE);
    assert_non_null(strstr(err.text, "11 objects, the file system has room for 10 files"));
}

static void a_listing_that_lies_does_not_begin_at_nothing_again(void **state)
{
    (void)state;
    space_reserve(run, UINT64_MAX);
    assert_true(run->space.need_bytes == UINT64_MAX);
    run->space.need_bytes = UINT64_MAX - 4096;
    space_reserve(run, 8192);
    assert_true(run->space.need_bytes == UINT64_MAX);
}

static void without_the_check_all_is_counted_and_nothing_refused(void **state)
{
    (void)state;
    struct err err;
    run->o.size_check = false;
    space_reserve(run, 1000 * 4096);
    assert_int_equal(space_check(run, &err), 0);
    assert_int_equal(run->space.need_bytes, 1000 * 4096);
}

/* ---- an entry's key ---------------------------------------------------------------------------------------------- */

static void assert_key(const char *uri, const char *sub_path, uint16_t source, const char *path, const char *want)
{
    struct err err;
    struct store_object o;
    struct store *store;
    struct store_options options = {
        .uri = str_of(uri), .endpoint = "http://127.0.0.1:1", .region = "us-east-1", .auth = STORE_AUTH_ANONYMOUS};
    assert_int_equal(store_open(&options, &store, &err), 0); /* sends no request */
    run_source = (struct hydrate_source){.store = store, .uri = uri, .sub_path = sub_path};
    struct index_entry e = {.path = str_of(path), .size_bytes = 7, .generation = 9, .source = source};
    object_of_entry(lane, &e, &o);
    assert_true(o.size_bytes == 7 && o.generation == 9);
    assert_true(str_eq(o.key, str_of(want)));
    store_free(store);
    run_source = (struct hydrate_source){.uri = "s3://bucket/prefix/"};
}

static void a_path_stands_behind_the_prefix(void **state)
{
    (void)state;
    assert_key("s3://bucket/data/set/", NULL, 0, "a/b", "data/set/a/b");
    assert_key("s3://bucket/data/set", NULL, 0, "a/b", "data/set/a/b"); /* the prefix was a directory */
}

static void sub_path_is_not_in_the_key(void **state)
{
    (void)state;
    assert_key("s3://bucket/data/set/", "models/one/", 0, "models/one/a", "data/set/a");
    assert_key("s3://bucket/data/set/", "", 0, "a", "data/set/a");
}

static void an_object_that_the_uri_names_is_itself(void **state)
{
    (void)state;
    assert_key("s3://bucket/data/file.bin", NULL, SOURCE_SINGLE, "file.bin", "data/file.bin");
    assert_key("s3://bucket/data/file.bin", "sub", SOURCE_SINGLE, "sub/file.bin", "data/file.bin");
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
        TEST(a_path_stands_behind_the_prefix),
        TEST(sub_path_is_not_in_the_key),
        TEST(an_object_that_the_uri_names_is_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
