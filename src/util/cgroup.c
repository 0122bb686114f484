/* SPDX-License-Identifier: Apache-2.0 */
#include "util/cgroup.h"
#include "util/file.h"
#include <fcntl.h>
#include <limits.h>

enum { GROUPS_BYTES_MAX = 64 << 10, LIMIT_BYTES_MAX = 64 };

/* Without a limit, version 1 writes a number near 2^63 for memory and -1 for CPUs; version 2 writes "max". */
#define LIMIT_MAX (UINT64_C(1) << 50)

/* Reads `count` numbers of a group's file; false: it has fewer. */
static bool read_numbers(int mounts, struct str group, const char *file, uint64_t *ret, size_t count)
{
    auto_mem char *text = NULL;
    auto_sbuf path = SBUF(PATH_MAX);
    size_t len;
    sbuf_addf(&path, "%.*s/%s", STR_FMT(group), file);
    if (path.overflow || file_read(mounts, path.ptr, LIMIT_BYTES_MAX, &text, &len, ERR_IGNORED) < 0)
        return false;
    struct str rest = str_trim((struct str){text, len}), number;
    for (size_t i = 0; i < count; i++)
        if (!str_split(&rest, ' ', &number) || str_to_u64(number, &ret[i], ERR_IGNORED) < 0 || ret[i] > LIMIT_MAX)
            return false;
    return true;
}

static uint64_t memory_1(int mounts, struct str group)
{
    uint64_t limit;
    return read_numbers(mounts, group, "memory.limit_in_bytes", &limit, 1) ? limit : CGROUP_NO_LIMIT;
}

static uint64_t memory_2(int mounts, struct str group)
{
    uint64_t limit;
    return read_numbers(mounts, group, "memory.max", &limit, 1) ? limit : CGROUP_NO_LIMIT;
}

static uint64_t cpu_1(int mounts, struct str group)
{
    uint64_t quota, period;
    bool has = read_numbers(mounts, group, "cpu.cfs_quota_us", &quota, 1) &&
               read_numbers(mounts, group, "cpu.cfs_period_us", &period, 1) && period > 0;
    return has ? quota * 1000 / period : CGROUP_NO_LIMIT;
}

static uint64_t cpu_2(int mounts, struct str group)
{
    uint64_t of[2]; /* quota and period */
    return read_numbers(mounts, group, "cpu.max", of, 2) && of[1] > 0 ? of[0] * 1000 / of[1] : CGROUP_NO_LIMIT;
}

static const struct cgroup_controller {
    struct str name; /* version 1 has a hierarchy for each */
    uint64_t (*version_1)(int mounts, struct str group);
    uint64_t (*version_2)(int mounts, struct str group);
} memory = {STR("memory"), memory_1, memory_2}, cpu = {STR("cpu"), cpu_1, cpu_2};

/* The limit of a group and all its parents. */
static uint64_t least_on_the_way(int mounts, struct str hierarchy, struct str group,
                                 uint64_t (*limit)(int mounts, struct str group))
{
    uint64_t least = CGROUP_NO_LIMIT;
    auto_sbuf path = SBUF(PATH_MAX);
    sbuf_add(&path, hierarchy);
    sbuf_add(&path, group);
    while (!path.overflow && path.len >= hierarchy.len) {
        while (path.len > hierarchy.len && path.ptr[path.len - 1] == '/')
            sbuf_cut(&path, path.len - 1);
        least = min_u64(least, limit(mounts, sbuf_str(&path)));
        if (path.len == hierarchy.len)
            break;
        sbuf_cut(&path, path_directory_len(sbuf_str(&path)));
    }
    return least;
}

/* "4:memory:/kubepods/pod1", "0::/kubepods/pod1" */
static uint64_t limit_of(const struct cgroup_controller *c, struct str groups, int mounts)
{
    uint64_t least = CGROUP_NO_LIMIT;
    struct str line, number, controllers;
    while (str_split(&groups, '\n', &line)) {
        if (!str_split(&line, ':', &number) || !str_split(&line, ':', &controllers))
            continue;
        if (str_is_in(c->name, controllers, ','))
            least = min_u64(least, least_on_the_way(mounts, c->name, line, c->version_1));
        else if (controllers.len == 0)
            least = min_u64(least, least_on_the_way(mounts, STR("."), line, c->version_2));
    }
    return least;
}

static uint64_t limit_of_self(const struct cgroup_controller *c)
{
    auto_mem char *text = NULL;
    size_t len;
    auto_fd mounts = open("/sys/fs/cgroup", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (mounts < 0 || file_read(AT_FDCWD, "/proc/self/cgroup", GROUPS_BYTES_MAX, &text, &len, ERR_IGNORED) < 0)
        return CGROUP_NO_LIMIT;
    return limit_of(c, (struct str){text, len}, mounts);
}

uint64_t cgroup_memory_limit(void)
{
    return limit_of_self(&memory);
}

uint64_t cgroup_cpu_limit(void)
{
    return limit_of_self(&cpu);
}

uint64_t cgroup_memory_limit_of(struct str groups, int mounts)
{
    return limit_of(&memory, groups, mounts);
}

uint64_t cgroup_cpu_limit_of(struct str groups, int mounts)
{
    return limit_of(&cpu, groups, mounts);
}
