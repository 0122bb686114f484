/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/disk.h"
#include "unit.h"
#include <fcntl.h>

static const struct disk_facts xfs_with_quota = {"xfs", true, true, true};
static const struct disk_facts ext4_with_quota = {"ext4", true, true, false};
static const struct disk_facts ext4_counting_only = {"ext4", true, false, true};
static const struct disk_facts ext4_plain = {"ext4", false, false, true};
static const struct disk_facts btrfs_with_everything = {"0x9123683e", true, true, true};
static const struct disk_facts nothing = {"ext4", false, false, false};

static void chooses(const struct disk_facts *f, enum spec_backend wish, enum spec_backend wanted, const char *word)
{
    enum spec_backend b = BACKEND_AUTO;
    char why[DISK_WHY_MAX];
    struct err err = {0};
    assert_int_equal(disk_choose(f, wish, &b, why, &err), 0);
    assert_int_equal(b, wanted);
    if (!strstr(why, word))
        fail_msg("'%s' does not say '%s'", why, word);
}

static void refuses(const struct disk_facts *f, enum spec_backend wish)
{
    enum spec_backend b = BACKEND_AUTO;
    char why[DISK_WHY_MAX];
    struct err err = {0};
    assert_int_equal(disk_choose(f, wish, &b, why, &err), -ERR_UNSUPPORTED);
    assert_int_equal(err.id, 2020);
    assert_int_equal(b, BACKEND_AUTO);
}

static void quota_is_taken_where_the_kernel_enforces_it(void **state)
{
    (void)state;
    chooses(&xfs_with_quota, BACKEND_AUTO, BACKEND_QUOTA, "xfs");
    chooses(&ext4_with_quota, BACKEND_AUTO, BACKEND_QUOTA, "ext4");
    chooses(&ext4_with_quota, BACKEND_QUOTA, BACKEND_QUOTA, "ext4");
}

static void loop_is_taken_elsewhere_and_says_why(void **state)
{
    (void)state;
    chooses(&ext4_plain, BACKEND_AUTO, BACKEND_LOOP, "does not count");
    chooses(&ext4_counting_only, BACKEND_AUTO, BACKEND_LOOP, "not enforced");
    chooses(&btrfs_with_everything, BACKEND_AUTO, BACKEND_LOOP, "only XFS and ext4");
}

static void requested_backend_is_used_or_refused(void **state)
{
    (void)state;
    chooses(&xfs_with_quota, BACKEND_LOOP, BACKEND_LOOP, "as configured");
    refuses(&ext4_with_quota, BACKEND_LOOP);
    refuses(&ext4_plain, BACKEND_QUOTA);
    refuses(&ext4_counting_only, BACKEND_QUOTA);
}

static void with_neither_there_is_no_pool(void **state)
{
    (void)state;
    refuses(&nothing, BACKEND_AUTO);
}

static void the_kernel_is_asked(void **state)
{
    (void)state;
    struct disk_facts f = {0};
    struct err err;
    int dir = open("/proc", O_RDONLY | O_DIRECTORY);
    assert_int_equal(disk_probe(dir, &f, &err), 0);
    close(dir);
    assert_string_equal(f.fs_type, "0x9fa0");
    assert_false(f.quota_accounted);
    assert_false(f.quota_enforced);
}

static void label_of_a_shared_file_system_is_refused(void **state)
{
    (void)state;
    const struct disk d = {.backend = BACKEND_QUOTA, .dir = -1, .path = "/pool/volumes/v"};
    struct err err;
    assert_int_equal(disk_set_label(&d, NULL, &err), 0);
    assert_int_equal(disk_set_label(&d, "u:r:t:s0", &err), -ERR_INVALID);
    assert_int_equal(err.id, CIS_CONTEXT_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quota_is_taken_where_the_kernel_enforces_it),
        cmocka_unit_test(loop_is_taken_elsewhere_and_says_why),
        cmocka_unit_test(requested_backend_is_used_or_refused),
        cmocka_unit_test(with_neither_there_is_no_pool),
        cmocka_unit_test(the_kernel_is_asked),
        cmocka_unit_test(label_of_a_shared_file_system_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
