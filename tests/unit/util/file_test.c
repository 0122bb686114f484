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

static void a_path_is_cut_at_its_last_slash(void **state)
{
    (void)state;
    static const struct {
        struct str path;
        const char *parent;
        size_t folder_len;
    } rows[] = {
        {STR("a/b/c"), "a/b", 4}, {STR("a/b/"), "a/b", 4}, {STR("/a"), "", 1}, {STR("a"), "", 0}, {STR(""), "", 0}};
    for (size_t i = 0; i < countof(rows); i++) {
        assert_true(str_eq(path_parent(rows[i].path), str_of(rows[i].parent)));
        assert_int_equal(path_folder_len(rows[i].path), rows[i].folder_len);
    }
    assert_int_equal(path_parent(STR_NULL).len, 0);
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

static void a_stream_gives_each_entry_once_and_no_dots(void **state)
{
    (void)state;
    struct err err;
    auto_fd folder = -1;
    assert_int_equal(dir_make(dir, "listed", 0755, &folder, &err), 0);
    auto_dir d = dir_stream(openat(folder, ".", O_RDONLY | O_DIRECTORY));
    assert_non_null(d);
    errno = EIO;
    assert_null(dir_next(d));
    assert_int_equal(errno, 0);
    assert_int_equal(mkdirat(folder, "...", 0755), 0);
    assert_int_equal(mkdirat(folder, ".a", 0755), 0);
    auto_dir filled = dir_stream(openat(folder, ".", O_RDONLY | O_DIRECTORY));
    assert_non_null(filled);
    size_t count = 0;
    for (struct dirent *e; (e = dir_next(filled)) != NULL; count++)
        assert_true(strcmp(e->d_name, "...") == 0 || strcmp(e->d_name, ".a") == 0);
    assert_int_equal(errno, 0);
    assert_int_equal(count, 2);
}

static void what_is_no_folder_gives_no_stream_and_is_closed(void **state)
{
    (void)state;
    int fd = openat(dir, "file", O_RDONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_null(dir_stream(fd));
    assert_int_equal(errno, ENOTDIR);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_null(dir_stream(openat(dir, "absent", O_RDONLY)));
    assert_int_equal(errno, ENOENT);
}

static void a_path_is_made_whole_or_the_refusal_is_told(void **state)
{
    (void)state;
    struct err err;
    char path[128];
    auto_fd made = -1, again = -1;
    int none = -1;
    snprintf(path, sizeof path, "%s/p//q/r", dir_name);
    assert_int_equal(dir_make_path(path, 0755, &made, &err), 0);
    assert_int_equal(faccessat(dir, "p/q/r", F_OK, 0), 0);
    assert_int_equal(dir_make_path(path, 0755, &again, &err), 0);
    assert_int_equal(file_replace(dir, "plain-file", STR("x"), 0600, &err), 0);
    snprintf(path, sizeof path, "%s/plain-file/q/r", dir_name);
    assert_int_equal(dir_make_path(path, 0755, &none, &err), -ERR_INVALID);
    assert_int_equal(err.sys, ENOTDIR);
    assert_int_equal(dir_make_path("", 0755, &none, &err), -ERR_NOT_FOUND);
    assert_int_equal(none, -1);
}

static void what_is_below_is_opened_and_nothing_else(void **state)
{
    (void)state;
    struct err err;
    auto_fd inside = -1;
    assert_int_equal(file_replace(dir, "there", STR("x"), 0600, &err), 0);
    assert_int_equal(symlinkat("there", dir, "inward"), 0);
    assert_int_equal(symlinkat("/etc/passwd", dir, "outward"), 0);
    inside = path_open_links(dir, "inward", O_RDONLY);
    assert_true(inside >= 0);
    assert_int_equal(fcntl(inside, F_GETFD), FD_CLOEXEC);
    assert_int_equal(path_open_links(dir, "outward", O_RDONLY), -1);
    assert_int_equal(path_open(dir, "inward", O_RDONLY), -1);
    assert_int_equal(path_open(dir, "../there", O_RDONLY), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_is_cut_at_its_last_slash),
        cmocka_unit_test(a_replaced_file_reads_back_and_leaves_no_other),
        cmocka_unit_test(a_file_over_the_ceiling_is_refused),
        cmocka_unit_test(keys_that_cannot_be_paths_are_named),
        cmocka_unit_test(parents_are_made_below_and_never_through_a_link),
        cmocka_unit_test(a_stream_gives_each_entry_once_and_no_dots),
        cmocka_unit_test(what_is_no_folder_gives_no_stream_and_is_closed),
        cmocka_unit_test(a_path_is_made_whole_or_the_refusal_is_told),
        cmocka_unit_test(what_is_below_is_opened_and_nothing_else),
        cmocka_unit_test(a_tree_is_removed_and_what_links_point_to_stays),
    };
    return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
