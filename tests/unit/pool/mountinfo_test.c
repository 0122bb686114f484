/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/mount.h"
#include "unit.h"

static void a_line_is_read(void **state)
{
    (void)state;
    struct mount m;
    struct err err;
    assert_int_equal(
        mount_parse(STR("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:7 - ext3 /dev/root rw,errors=continue"), &m,
                    &err),
        0);
    assert_int_equal(m.id, 36);
    assert_int_equal(m.parent, 35);
    assert_int_equal(m.dev_major, 98);
    assert_int_equal(m.dev_minor, 0);
    assert_string_equal(m.root, "/mnt1");
    assert_string_equal(m.target, "/mnt2");
    assert_string_equal(m.fs_type, "ext3");
    assert_string_equal(m.source, "/dev/root");
    mount_done(&m);
    mount_done(&m);
}

static void octal_escapes_are_undone(void **state)
{
    (void)state;
    struct mount m;
    struct err err;
    assert_int_equal(
        mount_parse(STR("1 2 0:3 / /a\\040b\\011c\\012d\\134e\\134040 ro - fuse.x\\043y s\\040t rw"), &m, &err), 0);
    assert_string_equal(m.target, "/a b\tc\nd\\e\\040");
    assert_string_equal(m.fs_type, "fuse.x#y");
    assert_string_equal(m.source, "s t");
    mount_done(&m);
}

static void an_empty_source_is_a_source(void **state)
{
    (void)state;
    struct mount m;
    struct err err;
    assert_int_equal(mount_parse(STR("1 2 0:3 / /a rw - tmpfs  ro,size=4k"), &m, &err), 0);
    assert_string_equal(m.source, "");
    mount_done(&m);
}

/* As Linux with SELinux shows it: in quotes if it has a comma, after the flags of the file system. */
static void label_is_read_from_the_options(void **state)
{
    (void)state;
    static const struct {
        const char *options, *label;
    } cases[] = {
        {"rw,context=\"u:r:t:s0:c1,c2\",attr2,noquota", "u:r:t:s0:c1,c2"},
        {"ro,context=u:r:t:s0,attr2", "u:r:t:s0"},
        {"rw,context=u:r:t:s0", "u:r:t:s0"},
        {"rw,seclabel,attr2", NULL},
        {"rw,fscontext=u:r:t:s0,rootcontext=u:r:t:s0", NULL},
        {"rw,context=", NULL},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        auto_mem char *line = str_dupf("36 35 7:0 / /a rw - xfs /dev/loop0 %s", cases[i].options);
        struct mount m;
        struct err err;
        assert_int_equal(mount_parse(str_of(line), &m, &err), 0);
        if (cases[i].label)
            assert_string_equal(m.label, cases[i].label);
        else
            assert_null(m.label);
        mount_done(&m);
    }
}

static void malformed_line_is_corrupt(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "36",
        "36 35",
        "x 35 98:0 / /m rw - ext4 /dev/x rw",
        "36 35 98 / /m rw - ext4 /dev/x rw",
        "36 35 98:-1 / /m rw - ext4 /dev/x rw",
        "36 35 98:99999999999 / /m rw - ext4 /dev/x rw",
        "36 35 98:0 / m rw - ext4 /dev/x rw",
        "36 35 98:0 / /m\\04 rw - ext4 /dev/x rw",
        "36 35 98:0 / /m\\ rw - ext4 /dev/x rw",
        "36 35 98:0 / /m\\09x rw - ext4 /dev/x rw",
        "36 35 98:0 / /m\\000 rw - ext4 /dev/x rw",
        "36 35 98:0 / /m\\777 rw - ext4 /dev/x rw",
        "36 35 98:0 / /m rw shared:1 ext4 /dev/x rw",
        "36 35 98:0 / /m rw - ext4 /dev/x",
        "36 35 98:0 / /m rw - ext4 /dev/x ",
    };
    for (size_t i = 0; i < countof(bad); i++) {
        struct mount m;
        struct err err = {0};
        if (mount_parse(str_of(bad[i]), &m, &err) != -ERR_CORRUPT)
            fail_msg("'%s' was taken", bad[i]);
    }
}

static void the_root_is_always_mounted(void **state)
{
    (void)state;
    struct mount m = {0};
    struct err err;
    bool found = false;
    assert_int_equal(mount_find("/", &m, &found, &err), 0);
    assert_true(found);
    assert_string_equal(m.target, "/");
    mount_done(&m);
    assert_int_equal(mount_find("/proc/", &m, &found, &err), 0);
    assert_true(found);
    assert_string_equal(m.fs_type, "proc");
    mount_done(&m);
}

static void nothing_is_mounted_where_nothing_is(void **state)
{
    (void)state;
    struct mount m;
    struct err err;
    bool found = true;
    assert_int_equal(mount_is_at("/", &found, &err), 0);
    assert_true(found);
    assert_int_equal(mount_is_at("/no/such/place", &found, &err), 0);
    assert_false(found);
    assert_int_equal(mount_is_at("relative", &found, &err), -ERR_INVALID);
    assert_int_equal(mount_find("/no/such/place", &m, &found, &err), 0);
    assert_false(found);
    assert_int_equal(mount_find("relative", &m, &found, &err), -ERR_INVALID);
    assert_int_equal(mount_find("/proc/..", &m, &found, &err), -ERR_INVALID);
    assert_int_equal(mount_find("", &m, &found, &err), -ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_read),
        cmocka_unit_test(octal_escapes_are_undone),
        cmocka_unit_test(an_empty_source_is_a_source),
        cmocka_unit_test(label_is_read_from_the_options),
        cmocka_unit_test(malformed_line_is_corrupt),
        cmocka_unit_test(the_root_is_always_mounted),
        cmocka_unit_test(nothing_is_mounted_where_nothing_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
