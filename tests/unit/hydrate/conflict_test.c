/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "run.h"
#include <unistd.h>

static int setup(void **state)
{
    struct err err;
    bool is_new;
    const struct index_source source = {.text = STR("s3://bucket/prefix/")};
    const struct index_entry file = {.path = STR("a"), .size_bytes = 2 << 20},
                             below = {.path = STR("a/b"), .size_bytes = 3};
    if (run_setup(state) || index_create(dir, &source, &run->index, &err) < 0 ||
        index_add(run->index, &file, &is_new, &err) < 0 || index_add(run->index, &below, &is_new, &err) < 0 ||
        index_flush(run->index, true, &err) < 0)
        return 1;
    run->second_round = true;
    return index_finish(run->index, &err);
}

static int settle(struct err *err)
{
    struct index_entry e;
    assert_int_equal(index_get(run->index, 1, &e, err), 0);
    err_sys(err, ENOTDIR, "cannot create 'a/b'");
    return conflict_settle(lane, 1, &e, err);
}

static void what_a_failed_object_left_gives_way_to_a_folder_of_its_name(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(file_replace(run_data, "a", STR("half of it"), 0644, &err), 0);
    assert_int_equal(settle(&err), 0);
    assert_int_equal(faccessat(run_data, "a", F_OK, 0), -1);
    assert_int_equal(atomic_load(&run->objects_failed), 0); /* it was counted when it failed */
}

static void a_whole_object_gives_way_and_fails(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(file_replace(run_data, "a", STR("whole"), 0644, &err), 0);
    object_is_whole(run, 0);
    atomic_fetch_add(&run->bytes_done, 2 << 20);
    assert_int_equal(settle(&err), 0);
    assert_int_equal(faccessat(run_data, "a", F_OK, 0), -1);
    assert_int_equal(atomic_load(&run->objects_failed), 1);
    assert_int_equal(atomic_load(&run->objects_done), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_a_failed_object_left_gives_way_to_a_folder_of_its_name, setup,
                                        run_teardown),
        cmocka_unit_test_setup_teardown(a_whole_object_gives_way_and_fails, setup, run_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
