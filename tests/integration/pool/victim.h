/* SPDX-License-Identifier: Apache-2.0 */
/* victim.h - a pool with at most one volume, on which a child of the test acts while the test is its tracer. */
#pragma once

#include "pool_disk.h"
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

static char pool_dir[PATH_MAX];
static struct volume_id victim_id;

typedef int act(struct pool *p, struct err *err);

static inline int act_create(struct pool *p, struct err *err)
{
    auto_spec want = wanted("victim", 16 * MIB);
    auto_volume v = NULL;
    return pool_create_volume(p, want, 0, &v, err);
}

static inline int act_grow(struct pool *p, struct err *err)
{
    return pool_grow_volume(p, &victim_id, 32 * MIB, err);
}

static inline int act_delete(struct pool *p, struct err *err)
{
    int r = pool_delete_volume(p, &victim_id, err);
    return r < 0 ? r : pool_empty_trash(p, err);
}

/* A child that has opened the pool and stands before its act; `play` runs there and gives its exit code. */
static inline pid_t start_victim(int (*play)(struct pool *p, act *a, int told), act *a, int told)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct err err = {0};
        struct pool *p = NULL;
        struct pool_options o = options(pool_dir);
        if (try_pool(&o, &p, &err) < 0)
            _exit(2);
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        _exit(play(p, a, told));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status))
        fail_msg("the victim could not open the pool");
    ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD);
    return pid;
}

/* On to the next beginning or end of a system call. False: it has ended, with *ret_code. */
static inline bool next_stop(pid_t pid, int *ret_code)
{
    int status = 0;
    do {
        ptrace(PTRACE_SYSCALL, pid, 0, WIFSTOPPED(status) ? WSTOPSIG(status) : 0); /* signals reach it */
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFSIGNALED(status))
            fail_msg("the victim died of signal %d", WTERMSIG(status));
        if (WIFEXITED(status)) {
            *ret_code = WEXITSTATUS(status);
            return false;
        }
    } while (WSTOPSIG(status) != (SIGTRAP | 0x80));
    return true;
}

static inline size_t entries_of(const char *directory)
{
    glob_t found;
    char pattern[PATH_MAX + 16];
    snprintf(pattern, sizeof pattern, "%s/%s/*", pool_dir, directory);
    size_t count = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    if (count)
        globfree(&found);
    return count;
}

/* A child that the victim was just spawning has its locks until it becomes mkfs: so a first look may come too early. */
static inline void empty(struct pool *p)
{
    must(pool_empty_trash(p, &err));
    for (unsigned i = 0; i < 1000 && entries_of("making") > 0; i++) {
        usleep(1000);
        must(pool_empty_trash(p, &err));
    }
}

/* Opens the pool as after a restart; what is there must be whole. Volumes in it. */
static inline size_t check_pool(uint64_t *ret_capacity)
{
    struct pool_entry *list = NULL;
    struct pool_usage u;
    size_t count = 0;
    await_loops(mounts_here());
    auto_pool p = open_pool(pool_dir);
    empty(p);
    assert_int_equal(entries_of("making"), 0);
    assert_int_equal(entries_of("trash"), 0);
    must(pool_usage(p, &u, &err));
    must(pool_list_volumes(p, &(struct volume_id){0}, 10, &list, &count, &err));
    assert_int_equal(u.volumes, count);
    assert_in_range(count, 0, 1);
    *ret_capacity = 0;
    if (count == 1) {
        auto_volume v = NULL;
        struct volume_usage usage;
        must(pool_attach_volume(p, &list[0].volume_id, &err));
        must(pool_find_volume(p, &list[0].volume_id, &v, &err));
        must(volume_usage(v, &usage, &err));
        assert_int_equal(u.allocated_bytes, v->spec->capacity_bytes);
        assert_in_range(usage.total_bytes, v->spec->capacity_bytes / 2, v->spec->capacity_bytes);
        *ret_capacity = v->spec->capacity_bytes;
        victim_id = v->spec->id;
    }
    pool_entries_free(list, count);
    await_loops(1 + count); /* the pool's own disk is one */
    assert_int_equal(mounts_here(), 1 + count);
    return count;
}

/* The orphaned mkfs may still have the removed image open. */
static inline void check_freed(uint64_t before)
{
    uint64_t now = free_bytes(pool_dir);
    for (unsigned i = 0; i < 1000 && now + MIB < before; i++) {
        usleep(1000);
        now = free_bytes(pool_dir);
    }
    assert_in_range(now, before - MIB, before + MIB);
}

static inline void remove_victim(void)
{
    auto_pool p = open_pool(pool_dir);
    must(pool_delete_volume(p, &victim_id, &err));
    must(pool_empty_trash(p, &err));
}

static inline void make_victim(void)
{
    auto_pool p = open_pool(pool_dir);
    must(act_create(p, &err));
    auto_volume v = NULL;
    must(pool_find_volume_name(p, STR("victim"), &v, &err));
    victim_id = v->spec->id;
}

static struct pool_at disk;

static inline int enter_pool(void **state)
{
    if (enter_place(state) != 0)
        return -1;
    make_pool_disk(&disk, "disk", 400 * MIB);
    snprintf(pool_dir, sizeof pool_dir, "%s", disk.path);
    pool_close(open_pool(pool_dir));
    return 0;
}
