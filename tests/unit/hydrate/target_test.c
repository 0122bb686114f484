/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "hydrate/status.h"
#include "hydrate/target.h"
#include <stdio.h>
#include <sys/stat.h>

static const char *below(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", dir_name, name);
    return path;
}

static bool is_there(const char *name)
{
    return access(below(name), F_OK) == 0;
}

static void put(const struct target *t, const char *name)
{
    struct err err;
    auto_fd fd = -1;
    assert_int_equal(target_create(t, t->data, name, 7, O_WRONLY, false, &fd, &err), 0);
    assert_int_equal(write(fd, "new", 3), 3);
    assert_int_equal(target_place(t, t->data, name, 7, (struct target_file){0}, &err), 0);
}

static void staged_directory_appears_when_it_is_finished(void **state)
{
    (void)state;
    struct err err;
    auto_target t = NULL;
    assert_int_equal(target_open_dir(below("a/b/out/"), &t, &err), 0);
    assert_int_equal(t->kind, TARGET_STAGED);
    put(t, "file");
    assert_false(is_there("a/b/out"));
    assert_int_equal(target_finish(t, true, true, &err), 0);
    assert_true(is_there("a/b/out/file"));
    assert_false(is_there("a/b/.out.cistern/data"));
}

static void a_file_that_people_read_is_replaced_never_truncated(void **state)
{
    (void)state;
    struct err err;
    auto_target t = NULL;
    char text[8] = "";
    assert_int_equal(mkdir(below("out"), 0755), 0);
    auto_fd out = open(below("out"), O_RDONLY | O_DIRECTORY);
    assert_int_equal(file_replace(out, "file", STR("old"), 0644, &err), 0);
    auto_fd reader = open(below("out/file"), O_RDONLY);
    assert_int_equal(target_open_dir(below("out"), &t, &err), 0);
    assert_int_equal(t->kind, TARGET_IN_PLACE);
    t->overwrite = true;
    put(t, "file");
    assert_int_equal(read(reader, text, sizeof text), 3);
    assert_string_equal(text, "old");
    assert_int_equal(target_finish(t, true, false, &err), 0);
    assert_false(is_there("out/" TARGET_IN_PLACE_STATE));
}

static void a_link_in_the_place_of_its_state_is_not_followed(void **state)
{
    (void)state;
    struct err err;
    auto_target t = NULL;
    assert_int_equal(mkdirat(dir, "out", 0755), 0);
    assert_int_equal(mkdirat(dir, "elsewhere", 0755), 0);
    assert_int_equal(symlinkat("../elsewhere", dir, "out/" TARGET_IN_PLACE_STATE), 0);
    assert_true(target_open_dir(below("out"), &t, &err) < 0);
    assert_false(is_there("elsewhere/hydrate.lock"));
}

static void target_in_use_is_refused_until_it_is_closed(void **state)
{
    (void)state;
    struct err err;
    auto_target t = NULL;
    auto_target other = NULL;
    assert_int_equal(target_open_dir(below("out"), &t, &err), 0);
    assert_true(hydrate_is_alive(t->state));
    assert_int_equal(target_open_dir(below("out"), &other, &err), -ERR_BUSY);
    assert_int_equal(err.id, 1511);
    target_free(t);
    t = NULL;
    assert_int_equal(target_open_dir(below("out"), &t, &err), 0);
}

static void a_directory_with_a_record_is_opened_with_it(void **state)
{
    (void)state;
    struct err err;
    auto_target t = NULL;
    assert_int_equal(target_open_dir(below("out"), &t, &err), 0);
    put(t, "file");
    assert_int_equal(file_replace(t->state, "catalog", STR("x"), 0600, &err), 0);
    assert_int_equal(target_finish(t, false, false, &err), 0);
    target_free(t);
    t = NULL;
    assert_int_equal(target_open_dir(below("out"), &t, &err), 0);
    assert_int_equal(t->kind, TARGET_STAGED);
    assert_true(t->is_renamed);
    assert_int_equal(target_finish(t, true, false, &err), 0);
    assert_true(is_there("out/file"));
    assert_true(is_there(".out.cistern/catalog"));
    assert_false(is_there(".out.cistern/temporary"));
}

static void object_that_does_not_fit_leaves_nothing(void **state)
{
    (void)state;
    struct err err;
    auto_target t = NULL;
    assert_int_equal(target_open_dir(below("out"), &t, &err), 0);
    put(t, "file");
    assert_int_equal(target_clean(t, &err), 0);
    assert_false(is_there("out") || is_there(".out.cistern"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(staged_directory_appears_when_it_is_finished, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(a_file_that_people_read_is_replaced_never_truncated, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(a_link_in_the_place_of_its_state_is_not_followed, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(target_in_use_is_refused_until_it_is_closed, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(a_directory_with_a_record_is_opened_with_it, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(object_that_does_not_fit_leaves_nothing, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
