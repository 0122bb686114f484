/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "util/clock.h"
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

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
    assert_int_equal(file_read(dir, "big", 4, &text, &len, &err), -ERR_INVALID);
    assert_int_equal(file_read(dir, "absent", 4, &text, &len, &err), -ERR_NOT_FOUND);
    assert_string_equal(err.text, "cannot open 'absent': No such file or directory");
}

static void path_check_refuses_keys_that_cannot_be_paths(void **state)
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
        assert_int_equal(path_directory_len(rows[i].path), rows[i].folder_len);
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

static void tree_is_removed_and_targets_of_links_stay(void **state)
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

/* A chain of `levels` directories, each with a file, below `at`; the innermost is returned. */
static int make_chain(int at, unsigned levels, const char *name)
{
    int fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (unsigned i = 0; i < levels; i++) {
        assert_int_equal(mkdirat(fd, name, 0700), 0);
        int next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        close(fd);
        fd = next;
        close(openat(fd, "file", O_CREAT | O_WRONLY, 0600));
    }
    return fd;
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_SECOND + (uint64_t)t.tv_nsec;
}

/* In memory: this many directories would wait for a disk that others use. */
static uint64_t time_to_remove_chain(unsigned levels)
{
    struct err err;
    char name[] = "/dev/shm/cistern-deep-XXXXXX";
    assert_non_null(mkdtemp(name));
    auto_fd tree = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(make_chain(tree, levels, "d"));
    uint64_t began = cpu_ns();
    assert_int_equal(dir_remove(AT_FDCWD, name, &err), 0);
    assert_int_equal(faccessat(AT_FDCWD, name, F_OK, 0), -1);
    return cpu_ns() - began;
}

static void tree_of_any_depth_is_removed_in_linear_time_with_few_descriptors(void **state)
{
    (void)state;
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){.rlim_cur = 64, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    uint64_t short_ns = time_to_remove_chain(2000);
    uint64_t long_ns = time_to_remove_chain(20000);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    /* Ten times the levels; a hundred times would be quadratic. */
    assert_in_range(long_ns, 0, 40 * short_ns + NS_PER_SECOND);
}

static void wide_tree_with_deep_branches_is_removed(void **state)
{
    (void)state;
    struct err err;
    auto_fd tree = -1;
    assert_int_equal(dir_make(dir, "wide", 0755, &tree, &err), 0);
    for (unsigned i = 0; i < 30; i++) {
        char name[16];
        snprintf(name, sizeof name, "branch-%u", i);
        close(make_chain(tree, 70, name));
    }
    assert_int_equal(dir_remove(dir, "wide", &err), 0);
    assert_int_equal(faccessat(dir, "wide", F_OK, 0), -1);
}

static void names_links_modes_and_flags_do_not_stop_a_removal(void **state)
{
    (void)state;
    struct err err;
    auto_fd tree = -1, out = -1;
    assert_int_equal(dir_make(dir, "outside", 0755, &out, &err), 0);
    close(openat(out, "kept", O_CREAT | O_WRONLY, 0600));
    assert_int_equal(dir_make(dir, "hostile", 0755, &tree, &err), 0);
    auto_fd deep = make_chain(tree, 100, "\n\x1b %s");
    assert_int_equal(symlinkat("/", deep, "root"), 0);
    assert_int_equal(symlinkat("../../outside", tree, "link"), 0);
    assert_int_equal(mkfifoat(deep, "fifo", 0600), 0);
    char longest[NAME_MAX + 1];
    memset(longest, 0xff, NAME_MAX);
    longest[NAME_MAX] = '\0';
    assert_int_equal(mkdirat(deep, longest, 0), 0);
    int flags = FS_IMMUTABLE_FL;
    auto_fd frozen = openat(deep, ".", O_RDONLY | O_DIRECTORY);
    /* Not every file system has flags, and not everybody may set them. */
    (void)!ioctl(frozen, FS_IOC_SETFLAGS, &flags);
    assert_int_equal(fchmod(tree, 0), 0);
    assert_int_equal(dir_remove(dir, "hostile", &err), 0);
    assert_int_equal(faccessat(dir, "hostile", F_OK, 0), -1);
    assert_int_equal(faccessat(out, "kept", F_OK, 0), 0);
}

static void set_flags(int at, const char *name, int flags)
{
    auto_fd fd = openat(at, name, O_RDONLY | O_CLOEXEC);
    (void)!ioctl(fd, FS_IOC_SETFLAGS, &flags); /* not every file system has flags, as above */
}

/* Each is alone in its directory: a denied entry unlocks the directory for the others. */
static void each_denied_entry_of_a_tree_is_removed(void **state)
{
    (void)state;
    struct err err;
    auto_fd tree = -1, appended = -1, files = -1;
    assert_int_equal(dir_make(dir, "denied", 0755, &tree, &err), 0);
    assert_int_equal(dir_make(tree, "appended", 0755, &appended, &err), 0);
    close(openat(appended, "file", O_CREAT | O_WRONLY, 0600));
    set_flags(tree, "appended", FS_APPEND_FL);
    assert_int_equal(dir_make(tree, "files", 0755, &files, &err), 0);
    close(openat(files, "file", O_CREAT | O_WRONLY, 0600));
    set_flags(files, "file", FS_IMMUTABLE_FL);
    set_flags(dir, "denied", FS_IMMUTABLE_FL);
    assert_int_equal(dir_remove(dir, "denied", &err), 0);
    assert_int_equal(faccessat(dir, "denied", F_OK, 0), -1);
}

/* A process without the rights of root is denied by modes, too. */
static void modes_do_not_stop_the_removal_of_an_owner(void **state)
{
    (void)state;
    struct err err;
    auto_fd tree = -1;
    char path[64];
    if (getuid() != 0)
        skip();
    snprintf(path, sizeof path, "%s/owned", dir_name);
    assert_int_equal(chmod(dir_name, 0755), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (chmod(dir_name, 0777) != 0 || setresuid(65534, 65534, 65534) != 0 ||
            dir_make(AT_FDCWD, path, 0755, &tree, &err) < 0)
            _exit(1);
        auto_fd closed = make_chain(tree, 31, "d"), entered = openat(tree, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(make_chain(closed, 2, "moved")); /* beyond the levels that are open at once */
        (void)!fchmodat(closed, "moved", 0500, 0);
        (void)!mkdirat(tree, "pipes", 0700);
        (void)!mkfifoat(tree, "pipes/pipe", 0600); /* to open it would wait for a writer */
        (void)!fchmodat(tree, "pipes", 0500, 0);
        close(make_chain(entered, 2, "full")); /* an inner directory that cannot be opened */
        (void)!fchmodat(entered, "full/full", 0, 0);
        (void)!fchmodat(entered, "full", 0500, 0);
        _exit(fchmod(closed, 0500) == 0 && fchmod(entered, 0) == 0 && dir_remove(AT_FDCWD, path, &err) == 0 ? 0 : 2);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(faccessat(dir, "owned", F_OK, 0), -1);
}

/* dir_remove() while `source` is mounted at `at` of the tree. */
static int remove_with_mount(const char *tree, const char *source, const char *at, struct err *err)
{
    char from[64], to[64];
    snprintf(from, sizeof from, "%s/%s", dir_name, source);
    snprintf(to, sizeof to, "%s/%s/%s", dir_name, tree, at);
    assert_int_equal(mount(from, to, NULL, MS_BIND, NULL), 0);
    int r = dir_remove(dir, tree, err);
    assert_int_equal(umount2(to, 0), 0);
    return r;
}

static void first_failure_of_a_removal_is_reported_and_the_rest_is_removed(void **state)
{
    (void)state;
    struct err err;
    auto_fd tree = -1, inner = -1;
    if (getuid() != 0)
        skip();
    assert_int_equal(dir_make(dir, "failing", 0755, &tree, &err), 0);
    assert_int_equal(dir_make(tree, "inner", 0755, &inner, &err), 0);
    close(openat(tree, "file", O_CREAT | O_WRONLY, 0600));
    close(openat(inner, "bound", O_CREAT | O_WRONLY, 0600));
    close(openat(dir, "source-file", O_CREAT | O_WRONLY, 0600));
    assert_int_equal(remove_with_mount("failing", "source-file", "inner/bound", &err),
                     -ERR_BUSY); /* its directory fails later, by ENOTEMPTY */
    assert_non_null(strstr(err.text, "'bound'"));
    assert_int_equal(faccessat(tree, "file", F_OK, 0), -1);
    assert_int_equal(dir_remove(dir, "failing", &err), 0);
}

static void removal_of_a_link_leaves_its_target_and_of_a_denied_file_is_an_error(void **state)
{
    (void)state;
    struct err err;
    auto_fd there = -1;
    assert_int_equal(dir_make(dir, "target", 0755, &there, &err), 0);
    close(openat(there, "kept", O_CREAT | O_WRONLY, 0600));
    assert_int_equal(symlinkat("target", dir, "link"), 0);
    assert_int_equal(dir_remove(dir, "link", &err), 0);
    assert_int_equal(faccessat(there, "kept", F_OK, 0), 0);
    close(openat(dir, "plain", O_CREAT | O_WRONLY, 0600));
    assert_int_equal(dir_remove(dir, "plain/below", &err), -ERR_INVALID);
    assert_int_equal(dir_remove(dir, "plain", &err), 0);
}

static void mount_in_a_tree_is_not_entered(void **state)
{
    (void)state;
    struct err err;
    auto_fd tree = -1, out = -1;
    if (getuid() != 0)
        skip();
    assert_int_equal(dir_make(dir, "source", 0755, &out, &err), 0);
    close(openat(out, "kept", O_CREAT | O_WRONLY, 0600));
    assert_int_equal(dir_make(dir, "tree", 0755, &tree, &err), 0);
    assert_int_equal(mkdirat(tree, "mounted", 0755), 0);
    assert_int_equal(mkdirat(tree, "z", 0755), 0);
    assert_int_equal(remove_with_mount("tree", "source", "mounted", &err), -ERR_BUSY);
    assert_int_equal(faccessat(out, "kept", F_OK, 0), 0);
    assert_int_equal(faccessat(tree, "z", F_OK, 0), -1);
    assert_int_equal(dir_remove(dir, "tree", &err), 0);
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

static void dir_stream_of_a_file_fails_and_closes_it(void **state)
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

static void path_is_created_or_the_error_names_the_cause(void **state)
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

static void path_open_stays_below_its_directory(void **state)
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
        cmocka_unit_test(path_check_refuses_keys_that_cannot_be_paths),
        cmocka_unit_test(parents_are_made_below_and_never_through_a_link),
        cmocka_unit_test(tree_of_any_depth_is_removed_in_linear_time_with_few_descriptors),
        cmocka_unit_test(wide_tree_with_deep_branches_is_removed),
        cmocka_unit_test(names_links_modes_and_flags_do_not_stop_a_removal),
        cmocka_unit_test(each_denied_entry_of_a_tree_is_removed),
        cmocka_unit_test(modes_do_not_stop_the_removal_of_an_owner),
        cmocka_unit_test(first_failure_of_a_removal_is_reported_and_the_rest_is_removed),
        cmocka_unit_test(removal_of_a_link_leaves_its_target_and_of_a_denied_file_is_an_error),
        cmocka_unit_test(mount_in_a_tree_is_not_entered),
        cmocka_unit_test(a_stream_gives_each_entry_once_and_no_dots),
        cmocka_unit_test(dir_stream_of_a_file_fails_and_closes_it),
        cmocka_unit_test(path_is_created_or_the_error_names_the_cause),
        cmocka_unit_test(path_open_stays_below_its_directory),
        cmocka_unit_test(tree_is_removed_and_targets_of_links_stay),
    };
    return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
