/* SPDX-License-Identifier: Apache-2.0 */
#include "place.h"
#include "pool/disk.h"
#include <linux/fs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>

enum { MIB = 1 << 20 };

struct volume_at {
    char path[PATH_MAX];
    int dir;
    struct disk disk;
};

static void make_volume(struct volume_at *v, const char *name, uint64_t bytes)
{
    snprintf(v->path, sizeof v->path, "%s", at(name));
    assert_int_equal(mkdir(v->path, 0755), 0);
    v->dir = open(v->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    v->disk = (struct disk){.backend = BACKEND_LOOP, .dir = v->dir, .path = v->path, .capacity_bytes = bytes};
}

static void drop_volume(struct volume_at *v)
{
    must(disk_detach(&v->disk, &err));
    must(disk_release(&v->disk, &err));
    must(dir_remove(AT_FDCWD, v->path, &err));
    close(v->dir);
}

static uint64_t total_bytes(const struct volume_at *v)
{
    struct statvfs fs;
    char data[PATH_MAX + 8];
    snprintf(data, sizeof data, "%s/data", v->path);
    assert_int_equal(statvfs(data, &fs), 0);
    return fs.f_blocks * fs.f_frsize;
}

/* Writes until it hurts; the bytes that went in, and the errno that ended it. */
static uint64_t fill(const struct volume_at *v, const char *name, uint64_t most, int *ret_errno)
{
    char path[PATH_MAX + 64];
    static const char chunk[MIB];
    uint64_t written = 0;
    snprintf(path, sizeof path, "%s/data/%s", v->path, name);
    auto_fd fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    *ret_errno = 0;
    while (written < most) {
        ssize_t n = write(fd, chunk, sizeof chunk);
        if (n < 0) {
            *ret_errno = errno;
            break;
        }
        written += (uint64_t)n;
    }
    return written;
}

static void a_volume_is_made_attached_and_taken_apart_again(void **state)
{
    (void)state;
    struct volume_at v;
    make_volume(&v, "plain", 64 * MIB);
    must(disk_make(&v.disk, &err));
    must(disk_attach(&v.disk, &err));
    assert_int_equal(loops_here(), 1);
    assert_in_range(total_bytes(&v), 56 * MIB, 64 * MIB);
    assert_int_equal(access(at("plain/data/lost+found"), F_OK), -1);
    must(disk_detach(&v.disk, &err));
    await_loops(0);
    assert_int_equal(mounts_here(), 0);
    drop_volume(&v);
}

static void every_step_may_be_repeated(void **state)
{
    (void)state;
    struct volume_at v;
    int ignored;
    make_volume(&v, "again", 32 * MIB);
    must(disk_make(&v.disk, &err));
    must(disk_make(&v.disk, &err));
    must(disk_attach(&v.disk, &err));
    fill(&v, "x", MIB, &ignored);
    must(disk_attach(&v.disk, &err));
    must(disk_attach(&v.disk, &err));
    assert_int_equal(access(at("again/data/x"), F_OK), 0);
    assert_int_equal(loops_here(), 1);
    assert_int_equal(mounts_here(), 1);
    must(disk_grow(&v.disk, &err));
    must(disk_detach(&v.disk, &err));
    must(disk_detach(&v.disk, &err));
    must(disk_attach(&v.disk, &err));
    assert_int_equal(access(at("again/data/x"), F_OK), 0);
    drop_volume(&v);
}

static void a_full_volume_says_so_and_its_neighbour_feels_nothing(void **state)
{
    (void)state;
    struct volume_at full, other;
    int errnum;
    make_volume(&full, "full", 48 * MIB);
    make_volume(&other, "other", 48 * MIB);
    must(disk_make(&full.disk, &err));
    must(disk_make(&other.disk, &err));
    must(disk_attach(&full.disk, &err));
    must(disk_attach(&other.disk, &err));
    assert_in_range(fill(&full, "x", 100 * MIB, &errnum), 40 * MIB, 48 * MIB);
    assert_int_equal(errnum, ENOSPC);
    assert_int_equal(fill(&other, "y", 40 * MIB, &errnum), 40 * MIB);
    assert_int_equal(errnum, 0);
    auto_fd fd = open(at("other/data/y"), O_RDONLY);
    assert_int_equal(syncfs(fd), 0);
    fd_close(&fd);
    drop_volume(&full);
    drop_volume(&other);
}

static void a_mounted_volume_grows_under_its_writer(void **state)
{
    (void)state;
    struct volume_at v;
    int errnum;
    make_volume(&v, "growing", 32 * MIB);
    must(disk_make(&v.disk, &err));
    must(disk_attach(&v.disk, &err));
    fill(&v, "x", 100 * MIB, &errnum);
    assert_int_equal(errnum, ENOSPC);
    auto_fd held = open(at("growing/data/x"), O_WRONLY | O_APPEND);
    assert_true(held >= 0);
    v.disk.capacity_bytes = 96 * MIB;
    must(disk_grow(&v.disk, &err));
    assert_in_range(total_bytes(&v), 85 * MIB, 96 * MIB);
    static const char chunk[MIB];
    assert_int_equal(write(held, chunk, sizeof chunk), sizeof chunk);
    fd_close(&held);
    assert_in_range(fill(&v, "x", 48 * MIB, &errnum), 48 * MIB, 48 * MIB);
    drop_volume(&v);
}

static void a_detached_volume_grows_when_it_is_attached(void **state)
{
    (void)state;
    struct volume_at v;
    make_volume(&v, "later", 32 * MIB);
    must(disk_make(&v.disk, &err));
    v.disk.capacity_bytes = 64 * MIB;
    must(disk_grow(&v.disk, &err));
    must(disk_attach(&v.disk, &err));
    assert_in_range(total_bytes(&v), 56 * MIB, 64 * MIB);
    drop_volume(&v);
}

static void a_growth_cut_short_anywhere_ends_with_the_next_attach(void **state)
{
    (void)state;
    struct volume_at v;
    make_volume(&v, "cut", 32 * MIB);
    must(disk_make(&v.disk, &err));
    must(disk_attach(&v.disk, &err));
    /* killed after the promise was written: nothing done yet */
    v.disk.capacity_bytes = 48 * MIB;
    must(disk_attach(&v.disk, &err));
    assert_in_range(total_bytes(&v), 40 * MIB, 48 * MIB);
    /* killed after the image grew, before its device and file system did */
    auto_fd image = open(at("cut/data.img"), O_RDWR | O_CLOEXEC);
    assert_int_equal(fallocate(image, 0, 0, 80 * MIB), 0);
    v.disk.capacity_bytes = 80 * MIB;
    must(disk_attach(&v.disk, &err));
    assert_in_range(total_bytes(&v), 72 * MIB, 80 * MIB);
    fd_close(&image);
    drop_volume(&v);
}

static atomic_bool is_watching;

/* The lowest number of available blocks while is_watching, in *ctx. */
static void *watch_free_blocks(void *ctx)
{
    fsblkcnt_t *lowest = ctx;
    struct statvfs fs;
    while (atomic_load(&is_watching))
        if (statvfs(place, &fs) == 0 && fs.f_bavail < *lowest)
            *lowest = fs.f_bavail;
    return NULL;
}

static void a_growth_without_space_leaves_the_volume_and_the_disk_as_they_were(void **state)
{
    (void)state;
    struct volume_at v;
    struct stat before, after;
    make_volume(&v, "nospace", 32 * MIB);
    must(disk_make(&v.disk, &err));
    must(disk_attach(&v.disk, &err));
    assert_int_equal(stat(at("nospace/data.img"), &before), 0);
    struct statvfs fs;
    assert_int_equal(statvfs(place, &fs), 0);
    fsblkcnt_t lowest = fs.f_bavail;
    pthread_t watcher;
    atomic_store(&is_watching, true);
    assert_int_equal(pthread_create(&watcher, NULL, watch_free_blocks, &lowest), 0);
    v.disk.capacity_bytes = fs.f_bavail * fs.f_frsize + (UINT64_C(4) << 30); /* others may free some during the run */
    must_fail(ERR_NO_SPACE, 2028, disk_grow(&v.disk, &err));
    atomic_store(&is_watching, false);
    pthread_join(watcher, NULL);
    assert_in_range(lowest, fs.f_bavail / 2, fs.f_bavail);
    assert_int_equal(stat(at("nospace/data.img"), &after), 0);
    assert_int_equal(before.st_size, after.st_size);
    assert_in_range(after.st_blocks, before.st_blocks, before.st_blocks + 64);
    v.disk.capacity_bytes = 32 * MIB;
    must(disk_attach(&v.disk, &err));
    drop_volume(&v);
}

static void a_volume_in_use_is_not_detached(void **state)
{
    (void)state;
    struct volume_at v;
    make_volume(&v, "used", 32 * MIB);
    must(disk_make(&v.disk, &err));
    must(disk_attach(&v.disk, &err));
    auto_fd held = open(at("used/data"), O_RDONLY | O_DIRECTORY);
    must_fail(ERR_BUSY, 3010, disk_detach(&v.disk, &err));
    fd_close(&held);
    mkdir(at("pod"), 0755);
    must(mount_bind(AT_FDCWD, at("used/data"), at("pod"), false, &err));
    must_fail(ERR_BUSY, 3010, disk_detach(&v.disk, &err));
    must(mount_unmount(at("pod"), 0, false, &err));
    drop_volume(&v);
}

static void a_lazily_unmounted_volume_is_attached_over_its_old_device(void **state)
{
    (void)state;
    struct volume_at v;
    int errnum;
    make_volume(&v, "lazy", 32 * MIB);
    must(disk_make(&v.disk, &err));
    must(disk_attach(&v.disk, &err));
    fill(&v, "x", MIB, &errnum);
    auto_fd held = open(at("lazy/data/x"), O_RDWR | O_APPEND);
    must(mount_unmount(at("lazy/data"), 0, true, &err));
    assert_int_equal(loops_here(), 1);
    must(disk_attach(&v.disk, &err));
    assert_int_equal(loops_here(), 1);
    assert_int_equal(write(held, "y", 1), 1);
    struct stat st;
    assert_int_equal(stat(at("lazy/data/x"), &st), 0);
    assert_int_equal(st.st_size, MIB + 1);
    fd_close(&held);
    drop_volume(&v);
}

static void a_foreign_mount_on_data_is_refused(void **state)
{
    (void)state;
    struct volume_at v;
    make_volume(&v, "foreign", 32 * MIB);
    must(disk_make(&v.disk, &err));
    must(mount_make("none", at("foreign/data"), "tmpfs", 0, NULL, &err));
    must_fail(ERR_BUSY, 2011, disk_attach(&v.disk, &err));
    await_loops(0);
    must(mount_unmount(at("foreign/data"), 0, false, &err));
    drop_volume(&v);
}

static void a_destroyed_image_is_corrupt_and_leaks_no_device(void **state)
{
    (void)state;
    struct volume_at v;
    static const char garbage[8192];
    make_volume(&v, "garbage", 32 * MIB);
    must(disk_make(&v.disk, &err));
    auto_fd image = open(at("garbage/data.img"), O_RDWR | O_CLOEXEC);
    char magic[4];
    assert_int_equal(pread(image, magic, 4, 0), 4);
    assert_int_equal(pwrite(image, garbage, sizeof garbage, 0), sizeof garbage);
    must_fail(ERR_CORRUPT, 2012, disk_attach(&v.disk, &err));
    assert_int_equal(pwrite(image, magic, 4, 0), 4);
    must_fail(ERR_CORRUPT, 2012, disk_attach(&v.disk, &err));
    assert_int_equal(pwrite(image, "\2\0", 2, 102), 2);
    struct err err = {0};
    assert_true(disk_attach(&v.disk, &err) < 0);
    await_loops(0);
    fd_close(&image);
    drop_volume(&v);
}

/* Kernels from about 6.9 keep the ban on discarding for a device number, so that this cannot fail twice on a machine.
 * tests/vm runs it on an older kernel. */
static void trimming_gives_no_space_away(void **state)
{
    (void)state;
    struct volume_at pool, v;
    struct stat before, after;
    int errnum;
    make_volume(&pool, "trim", 128 * MIB);
    must(disk_make(&pool.disk, &err));
    must(disk_attach(&pool.disk, &err));
    make_volume(&v, "trim/data/v", 32 * MIB);
    must(disk_make(&v.disk, &err));
    must(disk_attach(&v.disk, &err));
    fill(&v, "x", 20 * MIB, &errnum);
    assert_int_equal(stat(at("trim/data/v/data.img"), &before), 0);
    assert_int_equal(unlink(at("trim/data/v/data/x")), 0);
    auto_fd root = open(at("trim/data/v/data"), O_RDONLY | O_DIRECTORY);
    struct fstrim_range range = {0, UINT64_MAX, 0};
    assert_int_equal(syncfs(root), 0);
    assert_int_equal(ioctl(root, FITRIM, &range), -1);
    assert_int_equal(errno, EOPNOTSUPP);
    fd_close(&root);
    assert_int_equal(stat(at("trim/data/v/data.img"), &after), 0);
    assert_true(after.st_blocks >= before.st_blocks);
    drop_volume(&v);
    drop_volume(&pool);
}

static void bytes_without_backing_are_counted(void **state)
{
    (void)state;
    struct volume_at v;
    uint64_t bytes = 1;
    make_volume(&v, "holes", 32 * MIB);
    must(disk_unbacked(&v.disk, &bytes, &err));
    assert_int_equal(bytes, 32 * MIB);
    must(disk_make(&v.disk, &err));
    must(disk_unbacked(&v.disk, &bytes, &err));
    assert_int_equal(bytes, 0);
    auto_fd image = open(at("holes/data.img"), O_RDWR | O_CLOEXEC);
    assert_int_equal(fallocate(image, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 26 * MIB, 4 * MIB), 0);
    fd_close(&image);
    must(disk_unbacked(&v.disk, &bytes, &err));
    assert_in_range(bytes, 3 * MIB, 4 * MIB);
    must(disk_attach(&v.disk, &err));
    must(disk_unbacked(&v.disk, &bytes, &err));
    assert_int_equal(bytes, 0);
    drop_volume(&v);
}

static void an_odd_capacity_is_rounded_up_to_a_block(void **state)
{
    (void)state;
    struct volume_at v;
    struct stat st;
    make_volume(&v, "odd", 32 * MIB + 1);
    must(disk_make(&v.disk, &err));
    must(disk_attach(&v.disk, &err));
    assert_int_equal(stat(at("odd/data.img"), &st), 0);
    assert_int_equal(st.st_size, 32 * MIB + 4096);
    drop_volume(&v);
}

static void a_volume_of_the_least_size_works(void **state)
{
    (void)state;
    struct volume_at v;
    int errnum;
    make_volume(&v, "least", SPEC_BYTES_MIN);
    must(disk_make(&v.disk, &err));
    must(disk_attach(&v.disk, &err));
    assert_int_equal(fill(&v, "x", 8 * MIB, &errnum), 8 * MIB);
    drop_volume(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_volume_is_made_attached_and_taken_apart_again),
        cmocka_unit_test(every_step_may_be_repeated),
        cmocka_unit_test(a_full_volume_says_so_and_its_neighbour_feels_nothing),
        cmocka_unit_test(a_mounted_volume_grows_under_its_writer),
        cmocka_unit_test(a_detached_volume_grows_when_it_is_attached),
        cmocka_unit_test(a_growth_cut_short_anywhere_ends_with_the_next_attach),
        cmocka_unit_test(a_growth_without_space_leaves_the_volume_and_the_disk_as_they_were),
        cmocka_unit_test(a_volume_in_use_is_not_detached),
        cmocka_unit_test(a_lazily_unmounted_volume_is_attached_over_its_old_device),
        cmocka_unit_test(a_foreign_mount_on_data_is_refused),
        cmocka_unit_test(a_destroyed_image_is_corrupt_and_leaks_no_device),
        cmocka_unit_test(trimming_gives_no_space_away),
        cmocka_unit_test(bytes_without_backing_are_counted),
        cmocka_unit_test(an_odd_capacity_is_rounded_up_to_a_block),
        cmocka_unit_test(a_volume_of_the_least_size_works),
    };
    return cmocka_run_group_tests(tests, enter_place, leave_place);
}
