/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

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

#define TEST(name) cmocka_unit_test_setup_teardown(name, run_setup, run_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_path_stands_behind_the_prefix),
        TEST(sub_path_is_not_in_the_key),
        TEST(an_object_that_the_uri_names_is_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
