/* SPDX-License-Identifier: Apache-2.0 */
#include "csi/caps.h"
#include "unit.h"
#include <string.h>

#define MODE(m) CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__##m

static Csi__V1__VolumeCapability__MountVolume mount;
static Csi__V1__VolumeCapability__AccessMode mode;
static Csi__V1__VolumeCapability cap;

static int fresh(void **state)
{
    (void)state;
    csi__v1__volume_capability__mount_volume__init(&mount);
    csi__v1__volume_capability__access_mode__init(&mode);
    csi__v1__volume_capability__init(&cap);
    mode.mode = MODE(SINGLE_NODE_WRITER);
    cap.access_mode = &mode;
    cap.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT;
    cap.mount = &mount;
    return 0;
}

static void a_mount_on_one_node_is_given(void **state)
{
    (void)state;
    struct err err;
    const int modes[] = {MODE(SINGLE_NODE_WRITER), MODE(SINGLE_NODE_READER_ONLY), MODE(SINGLE_NODE_SINGLE_WRITER),
                         MODE(SINGLE_NODE_MULTI_WRITER)};
    for (size_t i = 0; i < countof(modes); i++) {
        mode.mode = modes[i];
        assert_int_equal(caps_check(&cap, &err), 0);
        assert_int_equal(caps_is_read_only(&cap), modes[i] == MODE(SINGLE_NODE_READER_ONLY));
        assert_int_equal(caps_is_shared(&cap), i == 1 || i == 3);
    }
}

static void unsupported_capabilities_are_refused_by_name(void **state)
{
    (void)state;
    struct err err;
    char *flags[] = {(char[]){"noatime"}};
    const int modes[] = {MODE(UNKNOWN), MODE(MULTI_NODE_READER_ONLY), MODE(MULTI_NODE_SINGLE_WRITER),
                         MODE(MULTI_NODE_MULTI_WRITER), 99};
    for (size_t i = 0; i < countof(modes); i++) {
        mode.mode = modes[i];
        assert_int_equal(caps_check(&cap, &err), -ERR_INVALID);
    }
    mode.mode = MODE(MULTI_NODE_MULTI_WRITER);
    assert_int_equal(caps_check(&cap, &err), -ERR_INVALID);
    assert_non_null(strstr(err.text, "MULTI_NODE_MULTI_WRITER"));
    mode.mode = MODE(SINGLE_NODE_WRITER);
    mount.fs_type = (char[]){"xfs"};
    assert_int_equal(caps_check(&cap, &err), -ERR_INVALID);
    assert_non_null(strstr(err.text, "'xfs'"));
    mount.fs_type = (char[]){""};
    mount.mount_flags = flags;
    mount.n_mount_flags = 1;
    assert_int_equal(caps_check(&cap, &err), -ERR_INVALID);
    assert_non_null(strstr(err.text, "'noatime'"));
    assert_non_null(strstr(err.text, "mountOptions"));
    mount.mount_flags = NULL;
    mount.n_mount_flags = 0;
    cap.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK;
    assert_int_equal(caps_check(&cap, &err), -ERR_INVALID);
    cap.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE__NOT_SET;
    assert_int_equal(caps_check(&cap, &err), -ERR_INVALID);
    assert_int_equal(caps_check_all(NULL, 0, &err), -ERR_INVALID);
}

static int context_of(char *first, char *second, struct str *ret, struct err *err)
{
    char *flags[] = {first, second};
    mount.mount_flags = flags;
    mount.n_mount_flags = second ? 2 : 1;
    int r = caps_check(&cap, err);
    assert_int_equal(caps_context(&cap, ret, err), r);
    return r;
}

static void context_of_one_mount_flag_is_taken_and_another_flag_refused(void **state)
{
    (void)state;
    struct err err;
    struct str context;
    char longest[300] = "context=";
    assert_int_equal(caps_context(&cap, &context, &err), 0);
    assert_int_equal(context.len, 0);
    assert_int_equal(context_of((char[]){"context=\"u:r:t:s0:c1,c2\""}, NULL, &context, &err), 0);
    assert_true(str_eq(context, STR("u:r:t:s0:c1,c2")));
    assert_int_equal(context_of((char[]){"context=u:r:t:s0"}, NULL, &context, &err), 0);
    assert_true(str_eq(context, STR("u:r:t:s0")));
    const char *const bad[] = {
        "context=",    "context=\"\"",     "context=\"",      "context=a\",ro,b=\"c", "context=a\\",
        "context=a b", "context=\xc3\xa9", "fscontext=u:r:t", "Context=u:r:t",        ""};
    for (size_t i = 0; i < countof(bad); i++)
        assert_int_equal(context_of((char *)(uintptr_t)bad[i], NULL, &context, &err), -ERR_INVALID);
    assert_int_equal(context_of((char[]){"context=a"}, (char[]){"context=a"}, &context, &err), -ERR_INVALID);
    assert_int_equal(context_of((char[]){"context=a"}, (char[]){"noatime"}, &context, &err), -ERR_INVALID);
    assert_non_null(strstr(err.text, "'noatime'"));
    memset(longest + strlen("context="), 'x', 255);
    assert_int_equal(context_of(longest, NULL, &context, &err), 0);
    longest[strlen(longest)] = 'x';
    assert_int_equal(context_of(longest, NULL, &context, &err), -ERR_INVALID);
}

static void the_group_is_a_number_or_absent(void **state)
{
    (void)state;
    struct err err;
    bool has = true;
    uint32_t group = 7;
    assert_int_equal(caps_group(&cap, &has, &group, &err), 0);
    assert_false(has);
    assert_int_equal(group, 0);
    mount.volume_mount_group = (char[]){"1000"};
    assert_int_equal(caps_group(&cap, &has, &group, &err), 0);
    assert_true(has);
    assert_int_equal(group, 1000);
    mount.volume_mount_group = (char[]){"staff"};
    assert_int_equal(caps_group(&cap, &has, &group, &err), -ERR_INVALID);
    mount.volume_mount_group = (char[]){"4294967295"};
    assert_int_equal(caps_group(&cap, &has, &group, &err), -ERR_INVALID);
}

static int size_of(int64_t required, int64_t limit, uint64_t most, uint64_t *ret, struct err *err)
{
    Csi__V1__CapacityRange r = CSI__V1__CAPACITY_RANGE__INIT;
    uint64_t ret_limit;
    r.required_bytes = required;
    r.limit_bytes = limit;
    return caps_size(&r, 100, most, ret, &ret_limit, err);
}

static void the_size_is_exactly_what_the_range_allows(void **state)
{
    (void)state;
    struct err err;
    uint64_t size = 0, limit = 7;
    assert_int_equal(caps_size(NULL, 100, 0, &size, &limit, &err), 0);
    assert_int_equal(size, 100);
    assert_int_equal(limit, 0);
    assert_int_equal(size_of(1001, 1001, 0, &size, &err), 0);
    assert_int_equal(size, 1001);
    assert_int_equal(size_of(0, 500, 0, &size, &err), 0);
    assert_int_equal(size, 100);
    assert_int_equal(size_of(1, 99, 0, &size, &err), -ERR_RANGE); /* below what can be made */
    assert_int_equal(size_of(300, 200, 0, &size, &err), -ERR_RANGE);
    assert_int_equal(size_of(300, 0, 200, &size, &err), -ERR_RANGE);
    assert_int_equal(size_of(-1, 0, 0, &size, &err), -ERR_INVALID);
    assert_int_equal(size_of(0, -1, 0, &size, &err), -ERR_INVALID);
    assert_int_equal(size, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_mount_on_one_node_is_given, fresh),
        cmocka_unit_test_setup(unsupported_capabilities_are_refused_by_name, fresh),
        cmocka_unit_test_setup(context_of_one_mount_flag_is_taken_and_another_flag_refused, fresh),
        cmocka_unit_test_setup(the_group_is_a_number_or_absent, fresh),
        cmocka_unit_test(the_size_is_exactly_what_the_range_allows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
