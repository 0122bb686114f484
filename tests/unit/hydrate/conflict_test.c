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
    run->queue.is_second_pass = true;
    return index_finish(run->index, &err);
}

static int settle(struct err *err)
{
    struct index_entry e;
    assert_int_equal(index_get(run->index, 1, &e, err), 0);
    err_sys(err, ENOTDIR, "cannot create 'a/b'");
    enum hydrate_fault_kind kind;
    return conflict_resolve(lane, 1, &e, &kind, err);
}

static void rest_of_a_failed_object_is_removed_for_a_directory(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(file_replace(run_data, "a", STR("half of it"), 0644, &err), 0);
    assert_int_equal(settle(&err), 0);
    assert_int_equal(faccessat(run_data, "a", F_OK, 0), -1);
    assert_int_equal(atomic_load(&run->progress.objects_failed), 0); /* it was counted when it failed */
}

static void whole_object_in_the_way_is_removed_and_fails(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(file_replace(run_data, "a", STR("whole"), 0644, &err), 0);
    object_completed(run, 0);
    atomic_fetch_add(&run->progress.bytes_done, 2 << 20);
    assert_int_equal(settle(&err), 0);
    assert_int_equal(faccessat(run_data, "a", F_OK, 0), -1);
    assert_int_equal(atomic_load(&run->progress.objects_failed), 1);
    assert_int_equal(atomic_load(&run->progress.objects_done), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rest_of_a_failed_object_is_removed_for_a_directory, setup, run_teardown),
        cmocka_unit_test_setup_teardown(whole_object_in_the_way_is_removed_and_fails, setup, run_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
