/* SPDX-License-Identifier: Apache-2.0 */
/* A pool on NVMe disks, with the real mdadm and mkfs.xfs. Run by tests/vm/run: nvme0n1 and nvme1n1 are blank, nvme2n1
 * has an ext4 and the serial "old". */
#include "pool/mount.h"
#include "pool/raid.h"
#include "tool.h"
#include "unit.h"
#include "util/file.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static const char *const two[] = {"nvme0n1", "nvme1n1"};
static const struct local_disks_wanted wish = {.pool = "fast", .names = two, .name_count = 2};

static void ensure(const struct local_disks_wanted *w, const char *path)
{
    struct err err;
    char line[ERR_LINE_MAX];
    if (raid_ensure(w, path, &err) < 0)
        fail_msg("%s", err_line(&err, line, sizeof line));
}

/* As a reboot leaves it: nothing is mounted, no array runs. */
static void stop(const char *path)
{
    struct err err;
    const char *const argv[] = {"mdadm", "--stop", "--scan", NULL};
    assert_int_equal(mount_unmount(path, 0, false, &err), 0);
    (void)!tool_run(argv, &err); /* those that are mounted it cannot stop, and says so */
}

static bool has_project_quota(const char *path)
{
    struct err err;
    auto_mem char *text = NULL;
    size_t len;
    assert_int_equal(file_read(AT_FDCWD, "/proc/self/mounts", 1 << 20, &text, &len, &err), 0);
    const char *at = strstr(text, path), *end = at ? strchr(at, '\n') : NULL;
    return end && memmem(at, (size_t)(end - at), "prjquota", strlen("prjquota"));
}

static void blank_disks_become_a_mounted_array_once(void **state)
{
    (void)state;
    struct err err;
    struct mount m;
    bool found;
    ensure(&wish, "/mnt/fast");
    assert_int_equal(mount_find("/mnt/fast", &m, &found, &err), 0);
    assert_true(found);
    assert_string_equal(m.fs_type, "xfs");
    mount_done(&m);
    assert_true(has_project_quota(" /mnt/fast xfs "));
    auto_fd fd = open("/mnt/fast/kept", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    ensure(&wish, "/mnt/fast");
    assert_int_equal(access("/mnt/fast/kept", F_OK), 0);
}

static void array_after_a_reboot_is_assembled_with_its_content(void **state)
{
    (void)state;
    stop("/mnt/fast");
    assert_int_not_equal(access("/mnt/fast/kept", F_OK), 0);
    const char *const serials[] = {"new0", "new1"}; /* still in the configuration: not a second time */
    struct local_disks_wanted w = wish;
    w.wipe = serials;
    w.wipe_count = 2;
    ensure(&w, "/mnt/fast");
    assert_int_equal(access("/mnt/fast/kept", F_OK), 0);
}

static void a_disk_with_a_file_system_is_taken_only_by_its_serial(void **state)
{
    (void)state;
    struct err err;
    const char *const name[] = {"nvme2n1"}, *const serial[] = {"old"};
    struct local_disks_wanted w = {.pool = "other", .names = name, .name_count = 1};
    assert_int_equal(raid_ensure(&w, "/mnt/other", &err), -ERR_EXISTS);
    assert_int_equal(err.id, 2041);
    assert_non_null(strstr(err.text, "ext"));
    print_message("%s\n", err.text);
    w.wipe = serial;
    w.wipe_count = 1;
    ensure(&w, "/mnt/other");
    ensure(&w, "/mnt/other");
}

static void a_lost_disk_is_not_made_up_for(void **state)
{
    (void)state;
    struct err err;
    stop("/mnt/other");
    stop("/mnt/fast");
    const char *const one[] = {"nvme0n1"};
    struct local_disks_wanted w = {.pool = "fast", .names = one, .name_count = 1};
    assert_int_equal(raid_ensure(&w, "/mnt/fast", &err), -ERR_CORRUPT);
    assert_int_equal(err.id, 2042);
    ensure(&wish, "/mnt/fast");
    assert_int_equal(access("/mnt/fast/kept", F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blank_disks_become_a_mounted_array_once),
        cmocka_unit_test(array_after_a_reboot_is_assembled_with_its_content),
        cmocka_unit_test(a_disk_with_a_file_system_is_taken_only_by_its_serial),
        cmocka_unit_test(a_lost_disk_is_not_made_up_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
