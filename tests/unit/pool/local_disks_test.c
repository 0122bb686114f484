/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "pool/local_disks.h"
#include <stdio.h>
#include <sys/stat.h>

static const char *const any_model[] = {"Amazon EC2 NVMe*"};
static const struct local_disks_wanted wish = {.pool = "fast", .models = any_model, .model_count = 1};

static struct local_disk blank(const char *name)
{
    struct local_disk d = {.bytes = 1 << 30, .signature = {.kind = SIGNATURE_BLANK, .what = "nothing"}};
    snprintf(d.name, sizeof d.name, "%s", name);
    snprintf(d.model, sizeof d.model, "Amazon EC2 NVMe Instance Storage");
    snprintf(d.serial, sizeof d.serial, "AWS-%s", name);
    return d;
}

static struct local_disk member(const char *name, const char *array, const char *uuid, uint32_t of)
{
    struct local_disk d = blank(name);
    d.signature = (struct signature){.kind = SIGNATURE_MEMBER, .what = "a member of an array", .raid_disks = of};
    snprintf(d.signature.set_name, sizeof d.signature.set_name, "%s", array);
    snprintf(d.signature.set_uuid, sizeof d.signature.set_uuid, "%s", uuid);
    return d;
}

static void blank_disks_of_the_model_become_an_array_and_others_are_left_alone(void **state)
{
    (void)state;
    struct err err;
    struct local_disks_plan p;
    struct local_disk d[] = {blank("nvme0n1"), blank("nvme1n1"), blank("nvme2n1")};
    snprintf(d[0].model, sizeof d[0].model, "Amazon Elastic Block Store");
    assert_int_equal(local_disks_plan(&wish, d, 3, &p, &err), 0);
    assert_int_equal(p.step, LOCAL_DISKS_CREATE);
    assert_int_equal(p.count, 2);
    assert_string_equal(p.members[0]->name, "nvme1n1");
    const char *const by_name[] = {"nvme0n1"};
    struct local_disks_wanted w = {.pool = "fast", .names = by_name, .name_count = 1};
    assert_int_equal(local_disks_plan(&w, d, 3, &p, &err), 0);
    assert_int_equal(p.count, 1);
    assert_string_equal(p.members[0]->name, "nvme0n1");
}

static void no_disk_like_that_is_an_error(void **state)
{
    (void)state;
    struct err err;
    struct local_disks_plan p;
    assert_int_equal(local_disks_plan(&wish, NULL, 0, &p, &err), -ERR_NOT_FOUND);
    assert_int_equal(err.id, 2040);
}

static void a_disk_with_content_is_refused_unless_its_own_serial_was_given(void **state)
{
    (void)state;
    struct err err;
    struct local_disks_plan p;
    struct local_disk d[] = {blank("nvme1n1"), blank("nvme2n1")};
    d[1].signature = (struct signature){.kind = SIGNATURE_OTHER, .what = "LVM"};
    assert_int_equal(local_disks_plan(&wish, d, 2, &p, &err), -ERR_EXISTS);
    assert_int_equal(err.id, 2041);
    assert_non_null(strstr(err.text, "LVM"));
    assert_non_null(strstr(err.text, "AWS-nvme2n1"));
    struct local_disks_wanted w = wish;
    const char *const wrong[] = {"AWS-nvme1n1", "AWS-nvme2n", "*"};
    w.wipe = wrong;
    w.wipe_count = 3;
    assert_int_equal(local_disks_plan(&w, d, 2, &p, &err), -ERR_EXISTS);
    const char *const right[] = {"AWS-nvme2n1"};
    w.wipe = right;
    w.wipe_count = 1;
    assert_int_equal(local_disks_plan(&w, d, 2, &p, &err), 0);
    assert_int_equal(p.step, LOCAL_DISKS_CREATE);
    /* A disk without a serial cannot be meant by one. */
    d[1].serial[0] = '\0';
    const char *const empty[] = {""};
    w.wipe = empty;
    assert_int_equal(local_disks_plan(&w, d, 2, &p, &err), -ERR_EXISTS);
}

static void a_disk_in_use_partitioned_or_read_only_is_refused_whatever_was_given(void **state)
{
    (void)state;
    struct err err;
    struct local_disks_plan p;
    const char *const serial[] = {"AWS-nvme1n1"};
    struct local_disks_wanted w = wish;
    w.wipe = serial;
    w.wipe_count = 1;
    struct local_disk d = blank("nvme1n1");
    snprintf(d.holder, sizeof d.holder, "dm-0");
    assert_int_equal(local_disks_plan(&w, &d, 1, &p, &err), -ERR_EXISTS);
    d = blank("nvme1n1");
    d.has_partitions = true;
    assert_int_equal(local_disks_plan(&w, &d, 1, &p, &err), -ERR_EXISTS);
    d = blank("nvme1n1");
    d.read_only = true;
    assert_int_equal(local_disks_plan(&w, &d, 1, &p, &err), -ERR_EXISTS);
}

static void our_array_is_found_again_running_or_not_and_never_wiped(void **state)
{
    (void)state;
    struct err err;
    struct local_disks_plan p;
    const char *const serials[] = {"AWS-nvme1n1", "AWS-nvme2n1"};
    struct local_disks_wanted w = wish;
    w.wipe = serials;
    w.wipe_count = 2;
    struct local_disk d[] = {member("nvme1n1", "cistern-fast", "aa", 2), member("nvme2n1", "cistern-fast", "aa", 2),
                             blank("nvme3n1")};
    assert_int_equal(local_disks_plan(&w, d, 3, &p, &err), 0);
    assert_int_equal(p.step, LOCAL_DISKS_ASSEMBLE);
    assert_int_equal(p.count, 2); /* a disk that came later does not join */
    snprintf(d[0].holder, sizeof d[0].holder, "md127");
    assert_int_equal(local_disks_plan(&w, d, 3, &p, &err), 0);
    assert_int_equal(p.step, LOCAL_DISKS_ASSEMBLE);
    snprintf(d[1].holder, sizeof d[1].holder, "md127");
    assert_int_equal(local_disks_plan(&w, d, 3, &p, &err), 0);
    assert_int_equal(p.step, LOCAL_DISKS_RUNNING);
    assert_string_equal(p.array, "md127");
}

static void array_that_lost_a_disk_is_not_created_again(void **state)
{
    (void)state;
    struct err err;
    struct local_disks_plan p;
    struct local_disk d[] = {member("nvme1n1", "cistern-fast", "aa", 2), blank("nvme2n1")};
    assert_int_equal(local_disks_plan(&wish, d, 2, &p, &err), -ERR_CORRUPT);
    assert_int_equal(err.id, 2042);
    d[1] = member("nvme2n1", "cistern-fast", "bb", 2); /* of another one of that name */
    assert_int_equal(local_disks_plan(&wish, d, 2, &p, &err), -ERR_CORRUPT);
}

static void foreign_array_and_that_of_another_pool_are_content(void **state)
{
    (void)state;
    struct err err;
    struct local_disks_plan p;
    struct local_disk d = member("nvme1n1", "cistern-slow", "aa", 1);
    assert_int_equal(local_disks_plan(&wish, &d, 1, &p, &err), -ERR_EXISTS);
    d = member("nvme1n1", "cistern-fast", "aa", 1);
    d.signature.level = 1;
    assert_int_equal(local_disks_plan(&wish, &d, 1, &p, &err), -ERR_EXISTS);
}

static void names_of_arrays_fit_and_differ(void **state)
{
    (void)state;
    char a[SIGNATURE_NAME_MAX], b[SIGNATURE_NAME_MAX];
    local_disks_array_name("fast", a);
    assert_string_equal(a, "cistern-fast");
    local_disks_array_name("a-name-of-a-pool-that-is-much-too-long-for-it-1", a);
    local_disks_array_name("a-name-of-a-pool-that-is-much-too-long-for-it-2", b);
    assert_string_not_equal(a, b);
    assert_int_equal(strlen(a), SIGNATURE_NAME_MAX - 1);
}

/* ---- /sys -------------------------------------------------------------------------------------------------------- */

static void put(const char *root, const char *path, const char *text)
{
    char at[512];
    snprintf(at, sizeof at, "%s/%s", root, path);
    for (char *slash = strchr(at + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(at, 0755);
        *slash = '/';
    }
    FILE *f = fopen(at, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void the_disks_are_read_from_sys(void **state)
{
    (void)state;
    struct err err;
    struct local_disk d[LOCAL_DISKS_MAX];
    size_t count;
    put(dir_name, "block/nvme10n1/device/model", "Amazon EC2 NVMe Instance Storage        \n");
    put(dir_name, "block/nvme10n1/device/serial", "AWS22F2E0CF8F3C1EB21\n");
    put(dir_name, "block/nvme10n1/size", "1757812500\n");
    put(dir_name, "block/nvme10n1/ro", "0\n");
    put(dir_name, "block/nvme10n1/holders/md127/x", "");
    put(dir_name, "block/nvme2n1/size", "8\n");
    put(dir_name, "block/nvme2n1/ro", "1\n");
    put(dir_name, "block/nvme2n1/nvme2n1p1/partition", "1\n");
    put(dir_name, "block/sda/size", "8\n");
    put(dir_name, "block/loop0/size", "8\n");
    assert_int_equal(local_disks_scan(dir_name, d, &count, &err), 0);
    assert_int_equal(count, 2);
    assert_string_equal(d[0].name, "nvme2n1");
    assert_true(d[0].read_only && d[0].has_partitions);
    assert_string_equal(d[1].name, "nvme10n1");
    assert_string_equal(d[1].model, "Amazon EC2 NVMe Instance Storage");
    assert_string_equal(d[1].serial, "AWS22F2E0CF8F3C1EB21");
    assert_string_equal(d[1].holder, "md127");
    assert_true(d[1].bytes == 1757812500ULL * 512 && !d[1].read_only && !d[1].has_partitions);
    assert_int_equal(local_disks_scan("/no/such/sys", d, &count, &err), -ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blank_disks_of_the_model_become_an_array_and_others_are_left_alone),
        cmocka_unit_test(no_disk_like_that_is_an_error),
        cmocka_unit_test(a_disk_with_content_is_refused_unless_its_own_serial_was_given),
        cmocka_unit_test(a_disk_in_use_partitioned_or_read_only_is_refused_whatever_was_given),
        cmocka_unit_test(our_array_is_found_again_running_or_not_and_never_wiped),
        cmocka_unit_test(array_that_lost_a_disk_is_not_created_again),
        cmocka_unit_test(foreign_array_and_that_of_another_pool_are_content),
        cmocka_unit_test(names_of_arrays_fit_and_differ),
        cmocka_unit_test_setup_teardown(the_disks_are_read_from_sys, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
