/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "tree.h"
#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

static unsigned descriptors(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void tree_makes_directories_and_keeps_them_open(void **state)
{
    (void)state;
    struct err err;
    struct tree t;
    int first, second;
    const char *name, *path = "a/b/file";
    tree_init(&t, dir, 0750);
    assert_int_equal(tree_parent(&t, path, &first, &name, &err), 0);
    assert_ptr_equal(name, path + 4);
    assert_int_equal(tree_parent(&t, "a/b/other", &second, &name, &err), 0);
    assert_int_equal(first, second);
    assert_string_equal(name, "other");
    struct stat there, held;
    assert_int_equal(fstatat(dir, "a/b", &there, 0), 0);
    assert_int_equal(fstat(second, &held), 0);
    assert_true(there.st_ino == held.st_ino && (there.st_mode & 0777) == 0750);
    tree_done(&t);
}

static void file_at_the_top_is_in_the_root(void **state)
{
    (void)state;
    struct err err;
    struct tree t;
    int fd;
    const char *name;
    tree_init(&t, dir, 0700);
    assert_int_equal(tree_parent(&t, "file", &fd, &name, &err), 0);
    assert_int_equal(fd, dir);
    assert_string_equal(name, "file");
    tree_done(&t);
}

static void tree_with_thousands_of_directories_keeps_its_slots(void **state)
{
    (void)state;
    struct err err;
    struct tree t;
    unsigned before = descriptors();
    tree_init(&t, dir, 0700);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 2000; i++) {
            char path[64], want[64];
            int fd;
            const char *name;
            snprintf(path, sizeof path, "d%d/e/file", i);
            snprintf(want, sizeof want, "d%d/e", i);
            assert_int_equal(tree_parent(&t, path, &fd, &name, &err), 0);
            struct stat there, held;
            assert_int_equal(fstatat(dir, want, &there, 0), 0);
            assert_int_equal(fstat(fd, &held), 0);
            assert_true(there.st_ino == held.st_ino); /* never another's of the same slot */
            assert_true(descriptors() <= before + TREE_SLOTS);
        }
    tree_done(&t);
    assert_int_equal(descriptors(), before);
}

static void no_link_is_followed_on_the_way(void **state)
{
    (void)state;
    struct err err;
    struct tree t;
    int fd;
    const char *name;
    tree_init(&t, dir, 0700);
    assert_int_equal(symlinkat("/tmp", dir, "link"), 0);
    assert_true(tree_parent(&t, "link/file", &fd, &name, &err) < 0);
    assert_non_null(strstr(err.text, "link"));
    tree_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tree_makes_directories_and_keeps_them_open, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(file_at_the_top_is_in_the_root, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(tree_with_thousands_of_directories_keeps_its_slots, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(no_link_is_followed_on_the_way, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
