/* SPDX-License-Identifier: Apache-2.0 */
/* Project quotas, on the file system that argv names. Run by tests/vm/run inside a machine whose kernel has them. */
#include "pool_disk.h"
#include <linux/capability.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

static const char *pool_dir;

/* ext4 lets holders of CAP_SYS_RESOURCE pass a quota: a volume's mount process gives it up, and so do we. */
static int give_up_resource(void **state)
{
    (void)state;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) != 0)
        return -1;
    data[CAP_TO_INDEX(CAP_SYS_RESOURCE)].effective &= ~CAP_TO_MASK(CAP_SYS_RESOURCE);
    return (int)syscall(SYS_capset, &header, data);
}

static void quota_is_chosen_because_the_kernel_has_it(void **state)
{
    (void)state;
    auto_pool p = open_pool(pool_dir);
    print_message("%s\n", pool_backend_why(p));
    assert_int_equal(pool_backend(p), BACKEND_QUOTA);
}

static void a_full_volume_is_felt_by_its_writer_alone(void **state)
{
    (void)state;
    int errnum;
    auto_pool p = open_pool(pool_dir);
    auto_volume a = create(p, "a", 64 * MIB);
    auto_volume b = create(p, "b", 64 * MIB);
    assert_int_not_equal(a->spec->project, b->spec->project);
    assert_int_equal(loops_here(), 0);
    assert_in_range(fill(a, 100 * MIB, &errnum), 60 * MIB, 64 * MIB);
    assert_true(errnum == ENOSPC || errnum == EDQUOT);
    print_message("the writer's errno: %s\n", errnum == ENOSPC ? "ENOSPC" : "EDQUOT");
    assert_int_equal(fill(b, 60 * MIB, &errnum), 60 * MIB);
    assert_int_equal(errnum, 0);
    erase(p, a);
    erase(p, b);
}

/* Empty files until an error; returns their number. */
static uint64_t litter(const struct volume *v, uint64_t most, int *ret_errnum)
{
    uint64_t count = 0;
    int data = -1;
    must(volume_data(v, &data, &err));
    *ret_errnum = 0;
    for (; count < most; count++) {
        char name[32];
        snprintf(name, sizeof name, "%llu", (unsigned long long)count);
        int fd = openat(data, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd < 0) {
            *ret_errnum = errno;
            break;
        }
        close(fd);
    }
    close(data);
    return count;
}

static void volume_of_empty_files_has_no_more_than_its_share_of_inodes(void **state)
{
    (void)state;
    struct volume_usage u;
    int errnum;
    auto_pool p = open_pool(pool_dir);
    auto_volume a = create(p, "a", 32 * MIB);
    auto_volume b = create(p, "b", 32 * MIB);
    must(volume_usage(a, &u, &err));
    assert_int_equal(u.total_inodes, 8192);
    assert_in_range(litter(a, 10000, &errnum), 8000, 8192);
    assert_true(errnum == ENOSPC || errnum == EDQUOT);
    assert_int_equal(litter(b, 100, &errnum), 100);
    must(pool_grow_volume(p, &a->spec->id, 64 * MIB, &err));
    must(volume_usage(a, &u, &err));
    assert_int_equal(u.total_inodes, 16384);
    erase(p, a);
    erase(p, b);
}

static void usage_is_the_volumes_own(void **state)
{
    (void)state;
    struct volume_usage u;
    int errnum;
    auto_pool p = open_pool(pool_dir);
    auto_volume v = create(p, "u", 64 * MIB);
    must(volume_usage(v, &u, &err));
    assert_int_equal(u.total_bytes, 64 * MIB);
    fill(v, 16 * MIB, &errnum);
    must(volume_usage(v, &u, &err));
    assert_in_range(u.used_bytes, 16 * MIB, 17 * MIB);
    erase(p, v);
}

static void a_volume_grows_at_once(void **state)
{
    (void)state;
    int errnum;
    auto_pool p = open_pool(pool_dir);
    auto_volume v = create(p, "g", 32 * MIB);
    fill(v, 64 * MIB, &errnum);
    assert_int_not_equal(errnum, 0);
    must(pool_grow_volume(p, &v->spec->id, 64 * MIB, &err));
    assert_in_range(fill(v, 30 * MIB, &errnum), 29 * MIB, 30 * MIB);
    erase(p, v);
}

static void promised_space_is_not_promised_again(void **state)
{
    (void)state;
    struct pool_usage before, promised, used, after;
    struct volume *none = NULL;
    int errnum;
    auto_pool p = open_pool(pool_dir);
    must(pool_usage(p, &before, &err));
    auto_volume v = create(p, "p", 128 * MIB);
    must(pool_usage(p, &promised, &err));
    assert_in_range(before.available_bytes - promised.available_bytes, 127 * MIB, 129 * MIB);
    fill(v, 100 * MIB, &errnum);
    must(pool_usage(p, &used, &err));
    assert_in_range(promised.available_bytes + MIB - used.available_bytes, 0, 2 * MIB);
    auto_spec want = wanted("q", used.available_bytes + MIB);
    must_fail(ERR_NO_SPACE, 2028, pool_create_volume(p, want, 0, &none, &err));
    erase(p, v);
    sync();
    must(pool_usage(p, &after, &err));
    assert_in_range(after.available_bytes + MIB - before.available_bytes, 0, 2 * MIB);
}

/* As the owner of the file that fill() writes. */
static void leave_project(const struct volume *v)
{
    struct fsxattr attr;
    int data = -1;
    must(volume_data(v, &data, &err));
    auto_fd fd = openat(data, "fill", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    close(data);
    assert_int_equal(ioctl(fd, FS_IOC_FSGETXATTR, &attr), 0);
    attr.fsx_projid = 0;
    assert_int_equal(ioctl(fd, FS_IOC_FSSETXATTR, &attr), 0);
}

static void a_user_who_leaves_the_project_is_limited_by_the_image_of_a_bind_volume(void **state)
{
    (void)state;
    int errnum;
    auto_pool p = open_pool(pool_dir);
    auto_volume v = create(p, "quota", 64 * MIB);
    auto_volume bound = NULL;
    leave_project(v); /* why a bind volume has no quota */
    assert_int_equal(fill(v, 100 * MIB, &errnum), 100 * MIB);
    erase(p, v);
    auto_spec want = wanted("bound", 64 * MIB);
    want->params.access = ACCESS_BIND;
    must(pool_create_volume(p, want, 0, &bound, &err));
    assert_int_equal(loops_here(), 1);
    leave_project(bound);
    assert_in_range(fill(bound, 100 * MIB, &errnum), 40 * MIB, 64 * MIB);
    assert_int_equal(errnum, ENOSPC);
    erase(p, bound);
}

static void a_hundred_volumes_leave_nothing_behind(void **state)
{
    (void)state;
    auto_pool p = open_pool(pool_dir);
    many_come_and_go(p, 100);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quota_is_chosen_because_the_kernel_has_it),
        cmocka_unit_test(a_full_volume_is_felt_by_its_writer_alone),
        cmocka_unit_test(volume_of_empty_files_has_no_more_than_its_share_of_inodes),
        cmocka_unit_test(usage_is_the_volumes_own),
        cmocka_unit_test(a_volume_grows_at_once),
        cmocka_unit_test(promised_space_is_not_promised_again),
        cmocka_unit_test(a_user_who_leaves_the_project_is_limited_by_the_image_of_a_bind_volume),
        cmocka_unit_test(a_hundred_volumes_leave_nothing_behind),
    };
    if (argc != 2)
        return 2;
    pool_dir = argv[1];
    return cmocka_run_group_tests(tests, give_up_resource, NULL);
}
