/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"
#include "util/cgroup.h"
#include <sys/stat.h>

/* Writes `path` below the test's directory, as the kernel would show it. */
static void put(const char *path, const char *text)
{
    struct err err;
    int parent;
    const char *name;
    assert_int_equal(dir_make_parents(dir, path, 0700, &parent, &name, &err), 0);
    int fd = openat(parent, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    close(parent);
}

static void cgroup_without_a_limit_is_unlimited(void **state)
{
    (void)state;
    assert_true(cgroup_memory_limit_of(STR(""), dir) == CGROUP_NO_LIMIT);
    assert_true(cgroup_memory_limit_of(STR("garbage\n7:\n::\n0::/a\n"), dir) == CGROUP_NO_LIMIT);
    put("memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("a/memory.max", "max\n");
    assert_true(cgroup_memory_limit_of(STR("4:memory:/\n0::/a\n"), dir) == CGROUP_NO_LIMIT);
}

static void cgroup_limit_is_the_lowest_of_the_group_and_its_parents(void **state)
{
    (void)state;
    put("a/b/memory.max", "3000\n");
    put("a/memory.max", "2000\n");
    assert_int_equal(cgroup_memory_limit_of(STR("0::/a/b\n"), dir), 2000);
    put("a/b/memory.max", "1000\n");
    assert_int_equal(cgroup_memory_limit_of(STR("0::/a/b\n"), dir), 1000);
}

static void version_1_has_a_hierarchy_of_its_own_for_memory(void **state)
{
    (void)state;
    put("memory/a/memory.limit_in_bytes", "5000\n");
    put("cpu/a/memory.limit_in_bytes", "1\n");
    assert_int_equal(cgroup_memory_limit_of(STR("9:cpu,cpuacct:/a\n4:hugetlb,memory:/a\n0::/\n"), dir), 5000);
}

static void cgroup_limit_in_a_container_comes_from_the_mount(void **state)
{
    (void)state;
    put("memory/memory.limit_in_bytes", "7000\n");
    assert_int_equal(cgroup_memory_limit_of(STR("4:memory:/kubepods/pod1/c1"), dir), 7000);
}

static void cpus_are_a_quota_of_a_period(void **state)
{
    (void)state;
    put("a/cpu.max", "150000 100000\n");
    assert_int_equal(cgroup_cpu_limit_of(STR("0::/a\n"), dir), 1500);
    put("a/cpu.max", "max 100000\n");
    assert_true(cgroup_cpu_limit_of(STR("0::/a\n"), dir) == CGROUP_NO_LIMIT);
    put("cpu/b/cpu.cfs_quota_us", "200000\n");
    put("cpu/b/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cgroup_cpu_limit_of(STR("2:cpu,cpuacct:/b\n"), dir), 2000);
    put("cpu/b/cpu.cfs_quota_us", "-1\n");
    assert_true(cgroup_cpu_limit_of(STR("2:cpu:/b\n"), dir) == CGROUP_NO_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cgroup_without_a_limit_is_unlimited, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(cgroup_limit_is_the_lowest_of_the_group_and_its_parents, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(version_1_has_a_hierarchy_of_its_own_for_memory, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(cgroup_limit_in_a_container_comes_from_the_mount, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(cpus_are_a_quota_of_a_period, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
