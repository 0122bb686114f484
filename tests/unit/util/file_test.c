/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include <stdio.h>
#include <sys/stat.h>

static void a_replaced_file_reads_back_and_leaves_no_other(void **state)
{
    (void)state;
    struct err err;
    auto_mem char *text = NULL;
    size_t len;
    assert_int_equal(file_replace(dir, "a", STR("one"), 0600, &err), 0);
    assert_int_equal(file_replace(dir, "a", STR("two\0!"), 0600, &err), 0);
    assert_int_equal(file_read(dir, "a", 64, &text, &len, &err), 0);
    assert_int_equal(len, 5);
    assert_memory_equal(text, "two\0!", 5);
    assert_int_equal(unlinkat(dir, "a", 0), 0);
    struct stat st;
    assert_int_equal(fstat(dir, &st), 0);
    assert_int_equal(st.st_nlink, 2);
}

static void a_file_over_the_ceiling_is_refused(void **state)
{
    (void)state;
    struct err err;
    char *text;
    size_t len;
    assert_int_equal(file_replace(dir, "big", STR("12345"), 0600, &err), 0);
    assert_int_equal(file_read(dir, "big", 4, &text, &len, &err), -ERR_NO_SPACE);
    assert_int_equal(file_read(dir, "absent", 4, &text, &len, &err), -ERR_NOT_FOUND);
    assert_string_equal(err.text, "cannot open 'absent': No such file or directory");
}

static void keys_that_cannot_be_paths_are_named(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "/a", "a//b", "a/", "..", "a/../b", ".", "a/./b"};
    struct err err;
    for (size_t i = 0; i < countof(bad); i++)
        assert_int_equal(path_check(str_of(bad[i]), &err), -ERR_INVALID);
    assert_int_equal(path_check(STR("a\0b"), &err), -ERR_INVALID);
    char segment[300];
    memset(segment, 'x', sizeof segment);
    assert_int_equal(path_check((struct str){segment, 255}, &err), 0);
    assert_int_equal(path_check((struct str){segment, 256}, &err), -ERR_INVALID);
    assert_int_equal(path_check(STR("..a/b c/\xff"), &err), 0);
}

static void parents_are_made_below_and_never_through_a_link(void **state)
{
    (void)state;
    struct err err;
    auto_fd parent = -1;
    const char *name;
    assert_int_equal(dir_make_parents(dir, "x/y/z", 0755, &parent, &name, &err), 0);
    assert_string_equal(name, "z");
    assert_int_equal(faccessat(dir, "x/y", F_OK, 0), 0);
    assert_int_equal(symlinkat("/tmp", dir, "out"), 0);
    int other = -1;
    assert_true(dir_make_parents(dir, "out/z/z", 0755, &other, &name, &err) < 0);
    assert_int_equal(other, -1);
    assert_int_equal(dir_make_parents(dir, "plain", 0755, &other, &name, &err), 0);
    assert_string_equal(name, "plain");
    close(other);
}

static void a_tree_is_removed_and_what_links_point_to_stays(void **state)
{
    (void)state;
    struct err err;
    auto_fd tree = -1, keep = -1;
    assert_int_equal(dir_make(dir, "keep", 0755, &keep, &err), 0);
    assert_int_equal(file_replace(keep, "f", STR("x"), 0600, &err), 0);
    assert_int_equal(dir_make(dir, "tree", 0755, &tree, &err), 0);
    assert_int_equal(symlinkat("../keep", tree, "link"), 0);
    assert_int_equal(mkdirat(tree, "d", 0700), 0);
    assert_int_equal(dir_remove(dir, "tree", &err), 0);
    assert_int_equal(dir_remove(dir, "tree", &err), 0);
    assert_int_equal(faccessat(dir, "tree", F_OK, 0), -1);
    assert_int_equal(faccessat(keep, "f", F_OK, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replaced_file_reads_back_and_leaves_no_other),
        cmocka_unit_test(a_file_over_the_ceiling_is_refused),
        cmocka_unit_test(keys_that_cannot_be_paths_are_named),
        cmocka_unit_test(parents_are_made_below_and_never_through_a_link),
        cmocka_unit_test(a_tree_is_removed_and_what_links_point_to_stays),
    };
    return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
