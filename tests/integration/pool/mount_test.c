/* SPDX-License-Identifier: Apache-2.0 */
#include "place.h"
#include <linux/fs.h>
#include <sys/ioctl.h>

static void tmpfs(const char *target)
{
    must(mount_make("none", target, "tmpfs", 0, "size=1m", &err));
}

static void write_file(const char *path)
{
    auto_fd fd = open(path, O_WRONLY | O_CREAT, 0644);
    assert_true(fd >= 0);
}

static void the_topmost_of_a_stack_is_found(void **state)
{
    (void)state;
    assert_int_equal(mkdir(at("stack x\\y"), 0755), 0);
    tmpfs(at("stack x\\y"));
    must(mount_make("upper", at("stack x\\y"), "tmpfs", 0, NULL, &err));
    struct mount m = {0};
    bool found = false;
    must(mount_find(at("stack x\\y/"), &m, &found, &err));
    assert_true(found);
    assert_string_equal(m.source, "upper");
    mount_done(&m);
    must(mount_unmount(at("stack x\\y"), 0, false, &err));
    must(mount_find(at("stack x\\y"), &m, &found, &err));
    assert_false(found);
}

static void mounts_below_come_deepest_first(void **state)
{
    (void)state;
    mkdir(at("deep"), 0755);
    tmpfs(at("deep"));
    mkdir(at("deep/a"), 0755);
    mkdir(at("deeper"), 0755);
    tmpfs(at("deep/a"));
    tmpfs(at("deeper"));
    struct mount *all = NULL;
    size_t count = 0;
    must(mount_below(at("deep"), &all, &count, &err));
    assert_int_equal(count, 2);
    assert_string_equal(all[0].target, at("deep/a"));
    assert_string_equal(all[1].target, at("deep"));
    for (size_t i = 0; i < count; i++) {
        must(mount_unmount(all[i].target, 0, false, &err));
        mount_done(&all[i]);
    }
    free(all);
}

static void a_read_only_bind_is_read_only_and_its_source_is_not(void **state)
{
    (void)state;
    mkdir(at("from"), 0755);
    mkdir(at("to"), 0755);
    must(mount_bind(AT_FDCWD, at("from"), at("to"), true, &err));
    write_file(at("from/new"));
    assert_int_equal(access(at("to/new"), R_OK), 0);
    assert_int_equal(open(at("to/new"), O_WRONLY), -1);
    assert_int_equal(errno, EROFS);
    must(mount_unmount(at("to"), 0, false, &err));
}

static void a_file_binds_on_a_file(void **state)
{
    (void)state;
    write_file(at("file-a"));
    write_file(at("file-b"));
    must(mount_bind(AT_FDCWD, at("file-a"), at("file-b"), false, &err));
    struct mount m = {0};
    bool found = false;
    must(mount_find(at("file-b"), &m, &found, &err));
    assert_true(found);
    mount_done(&m);
    must(mount_unmount(at("file-b"), 0, false, &err));
    must_fail(ERR_NOT_FOUND, 0, mount_bind(AT_FDCWD, at("nothing"), at("file-b"), false, &err));
}

static void a_busy_mount_stays_unless_lazily_taken_away(void **state)
{
    (void)state;
    mkdir(at("busy"), 0755);
    tmpfs(at("busy"));
    auto_fd held = open(at("busy/x"), O_RDWR | O_CREAT, 0644);
    must_fail(ERR_BUSY, 3010, mount_unmount(at("busy"), 20 * 1000 * 1000, false, &err));
    assert_int_equal(access(at("busy/x"), F_OK), 0);
    must(mount_unmount(at("busy"), 20 * 1000 * 1000, true, &err));
    assert_int_equal(access(at("busy/x"), F_OK), -1);
    assert_int_equal(write(held, "x", 1), 1);
}

static void unmounting_nothing_is_success(void **state)
{
    (void)state;
    mkdir(at("plain"), 0755);
    must(mount_unmount(at("plain"), 0, false, &err));
    must(mount_unmount(at("no/such/directory"), 0, false, &err));
}

static bool is_immutable(const char *path)
{
    int flags = 0;
    auto_fd fd = open(path, O_RDONLY | O_DIRECTORY);
    return fd >= 0 && ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && flags & FS_IMMUTABLE_FL;
}

static void a_bare_mount_point_takes_no_file_even_from_root(void **state)
{
    (void)state;
    must(mount_point_make(at("bare"), &err));
    assert_true(is_immutable(at("bare")));
    assert_int_equal(open(at("bare/x"), O_WRONLY | O_CREAT, 0644), -1);
    assert_int_equal(errno, EPERM);
    must(mount_point_make(at("bare"), &err));
    assert_true(is_immutable(at("bare")));
    tmpfs(at("bare"));
    write_file(at("bare/x"));
    must(mount_point_make(at("bare"), &err));
    must_fail(ERR_BUSY, 0, mount_point_remove(at("bare"), &err));
    must(mount_unmount(at("bare"), 0, false, &err));
    must(mount_point_remove(at("bare"), &err));
    must(mount_point_remove(at("bare"), &err));
    assert_int_equal(access(at("bare"), F_OK), -1);
}

static void a_file_system_without_the_flag_gets_the_mode_alone(void **state)
{
    (void)state;
    mkdir(at("ramfs"), 0755);
    must(mount_make("none", at("ramfs"), "ramfs", 0, NULL, &err));
    struct stat st;
    must(mount_point_make(at("ramfs/bare"), &err));
    assert_false(is_immutable(at("ramfs/bare")));
    assert_int_equal(stat(at("ramfs/bare"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0);
    must(mount_point_remove(at("ramfs/bare"), &err));
    must(mount_unmount(at("ramfs"), 0, false, &err));
}

static void directory_with_content_is_not_made_a_mount_point(void **state)
{
    (void)state;
    mkdir(at("full"), 0755);
    write_file(at("full/x"));
    must_fail(ERR_EXISTS, 0, mount_point_make(at("full"), &err));
    must_fail(ERR_BUSY, 0, mount_point_remove(at("full"), &err));
    assert_int_equal(access(at("full/x"), F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_topmost_of_a_stack_is_found),
        cmocka_unit_test(mounts_below_come_deepest_first),
        cmocka_unit_test(a_read_only_bind_is_read_only_and_its_source_is_not),
        cmocka_unit_test(a_file_binds_on_a_file),
        cmocka_unit_test(a_busy_mount_stays_unless_lazily_taken_away),
        cmocka_unit_test(unmounting_nothing_is_success),
        cmocka_unit_test(a_bare_mount_point_takes_no_file_even_from_root),
        cmocka_unit_test(a_file_system_without_the_flag_gets_the_mode_alone),
        cmocka_unit_test(directory_with_content_is_not_made_a_mount_point),
    };
    return cmocka_run_group_tests(tests, enter_place, leave_place);
}
