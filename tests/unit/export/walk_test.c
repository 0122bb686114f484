/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "walk.h"
#include <stdio.h>
#include <sys/stat.h>

struct seen {
    unsigned files, skips[WALK_RECORDS + 1], troubles;
    uint64_t bytes;
    size_t longest;
};

static int on_file(void *ctx, const struct walk_file *f, struct err *err)
{
    struct seen *s = ctx;
    (void)err;
    s->files++;
    s->bytes += f->size_bytes;
    s->longest = f->path.len > s->longest ? f->path.len : s->longest;
    return 0;
}

static int on_skip(void *ctx, struct str path, enum walk_skip why, struct err *err)
{
    (void)path, (void)err;
    ((struct seen *)ctx)->skips[why]++;
    return 0;
}

static int on_error(void *ctx, struct str path, const struct err *why, struct err *err)
{
    (void)path, (void)why, (void)err;
    ((struct seen *)ctx)->troubles++;
    return 0;
}

static struct seen walked(void)
{
    struct seen s = {0};
    struct walk_sink sink = {.ctx = &s, .on_file = on_file, .on_skip = on_skip, .on_error = on_error};
    struct err err;
    if (walk_directory(dir, STR_NULL, &sink, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

static void put(int at, const char *name, size_t size)
{
    auto_fd fd = openat(at, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
}

static void records_of_the_export_are_left_out(void **state)
{
    (void)state;
    struct seen s = {0};
    struct stat records;
    struct err err;
    assert_int_equal(mkdirat(dir, "state", 0755), 0);
    put(dir, "state/logbook", 10);
    put(dir, "file", 10);
    assert_int_equal(fstatat(dir, "state", &records, 0), 0);
    struct walk_sink sink = {
        .ctx = &s, .on_file = on_file, .on_skip = on_skip, .on_error = on_error, .records = &records};
    assert_int_equal(walk_directory(dir, STR_NULL, &sink, &err), 0);
    assert_true(s.files == 1 && s.skips[WALK_RECORDS] == 1);
    assert_int_equal(
        unlinkat(dir, "state/logbook", 0) | unlinkat(dir, "state", AT_REMOVEDIR) | unlinkat(dir, "file", 0), 0);
}

static void empty_directory_has_no_files(void **state)
{
    (void)state;
    struct seen s = walked();
    assert_true(s.files == 0 && s.skips[WALK_EMPTY_DIRECTORY] == 0);
}

static void files_are_found_at_any_depth_apart_from_special_ones(void **state)
{
    (void)state;
    put(dir, "a", 10);
    put(dir, "b\xff\n", 20);
    assert_int_equal(mkdirat(dir, "d", 0755), 0);
    assert_int_equal(mkdirat(dir, "d/e", 0755), 0);
    assert_int_equal(mkdirat(dir, "none", 0755), 0);
    assert_int_equal(mkdirat(dir, "lost+found", 0700), 0);
    put(dir, "d/e/f", 30);
    assert_int_equal(symlinkat("/etc", dir, "link"), 0);
    assert_int_equal(symlinkat("a", dir, "d/link"), 0);
    assert_int_equal(mkfifoat(dir, "fifo", 0600), 0);
    struct seen s = walked();
    assert_true(s.files == 3 && s.bytes == 60 && s.troubles == 0);
    assert_int_equal(s.skips[WALK_LINK], 2);
    assert_int_equal(s.skips[WALK_FIFO], 1);
    assert_int_equal(s.skips[WALK_EMPTY_DIRECTORY], 1);
}

static void path_too_long_for_the_kernel_is_reported_and_the_rest_found(void **state)
{
    (void)state;
    char name[201];
    memset(name, 'n', 200);
    name[200] = '\0';
    auto_fd at = dup(dir);
    for (int i = 0; i < 30; i++) {
        put(at, "file", 1);
        assert_int_equal(mkdirat(at, name, 0755), 0);
        int next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        close(at);
        at = next;
    }
    struct seen s = walked();
    assert_int_equal(s.troubles, 1);
    assert_int_equal(s.files, 21);
    assert_true(s.longest < 4096);
}

static void wide_directory_needs_few_descriptors(void **state)
{
    (void)state;
    char name[32];
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "d%d", i);
        assert_int_equal(mkdirat(dir, name, 0755), 0);
        snprintf(name, sizeof name, "d%d/f", i);
        put(dir, name, 1);
    }
    struct seen s = walked();
    assert_int_equal(s.files, 3000);
}

static int refuse(void *ctx, const struct walk_file *f, struct err *err)
{
    (void)ctx;
    return err_set(err, ERR_NO_SPACE, "no room for '%.*s'", STR_FMT(f->path));
}

static void a_sink_that_refuses_ends_the_walk(void **state)
{
    (void)state;
    struct seen s = {0};
    struct walk_sink sink = {.ctx = &s, .on_file = refuse, .on_skip = on_skip, .on_error = on_error};
    struct err err;
    put(dir, "x", 1);
    assert_int_equal(walk_directory(dir, STR_NULL, &sink, &err), -ERR_NO_SPACE);
    assert_string_equal(err.text, "no room for 'x'");
}

static bool enough(void *ctx)
{
    return ((struct seen *)ctx)->files == 3;
}

static void a_walk_that_is_stopped_sees_nothing_more(void **state)
{
    (void)state;
    struct seen s = {0};
    struct walk_sink sink = {
        .ctx = &s, .on_file = on_file, .on_skip = on_skip, .on_error = on_error, .is_stopped = enough};
    struct err err;
    char name[16];
    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "f%d", i);
        put(dir, name, 1);
        snprintf(name, sizeof name, "d%d", i);
        assert_int_equal(mkdirat(dir, name, 0755), 0);
    }
    assert_int_equal(walk_directory(dir, STR_NULL, &sink, &err), -ERR_CANCELLED);
    assert_true(s.files == 3 && s.skips[WALK_EMPTY_DIRECTORY] == 0);
}

static bool always(void *ctx)
{
    (void)ctx;
    return true;
}

static void walk_stops_at_an_empty_directory_too(void **state)
{
    (void)state;
    struct walk_sink sink = {.is_stopped = always};
    struct err err;
    assert_int_equal(walk_directory(dir, STR_NULL, &sink, &err), -ERR_CANCELLED);
}

#define in_a_folder(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_a_folder(empty_directory_has_no_files),
        in_a_folder(records_of_the_export_are_left_out),
        in_a_folder(files_are_found_at_any_depth_apart_from_special_ones),
        in_a_folder(path_too_long_for_the_kernel_is_reported_and_the_rest_found),
        in_a_folder(wide_directory_needs_few_descriptors),
        in_a_folder(a_sink_that_refuses_ends_the_walk),
        in_a_folder(a_walk_that_is_stopped_sees_nothing_more),
        in_a_folder(walk_stops_at_an_empty_directory_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
