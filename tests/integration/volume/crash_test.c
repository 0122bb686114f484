/* SPDX-License-Identifier: Apache-2.0 */
/* Death before each system call of create, grow and delete in turn; then the pool is opened again, and must be as it
 * was before the call or as it is after it, with nothing leaked and nothing promised twice. */
#include "pool_place.h"
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

static char pool_path[PATH_MAX];
static char victim_id[SPEC_ID_LEN + 1];

typedef int act(struct space *s, struct err *err);

static int act_create(struct space *s, struct err *err)
{
    auto_spec want = wanted("victim", 16 * MIB);
    auto_volume v = NULL;
    return space_create(s, want, 0, &v, err);
}

static int act_grow(struct space *s, struct err *err)
{
    return space_grow(s, str_of(victim_id), 32 * MIB, err);
}

static int act_delete(struct space *s, struct err *err)
{
    int r = space_delete(s, str_of(victim_id), err);
    return r < 0 ? r : space_empty_trash(s, err);
}

/* In the child: opens the pool, lets the parent know, acts. */
static void victim(act *a)
{
    struct err err = {0};
    struct space *s = NULL;
    struct space_options o = options(pool_path);
    if (space_open(&o, &s, &err) < 0)
        _exit(2);
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    raise(SIGSTOP);
    _exit(a(s, &err) < 0 ? 1 : 0);
}

/* Kills the act before its `n`th system call. False: it ended on its own before that. */
static bool killed_at(act *a, unsigned n)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        victim(a);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status))
        fail_msg("the victim could not open the pool");
    ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD);
    for (unsigned stops = 0; stops < 2 * n - 1;) {
        ptrace(PTRACE_SYSCALL, pid, 0, WIFSTOPPED(status) && WSTOPSIG(status) == SIGCHLD ? SIGCHLD : 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            return false;
        }
        if (WIFSIGNALED(status))
            fail_msg("the victim died of signal %d", WTERMSIG(status));
        stops += WSTOPSIG(status) == (SIGTRAP | 0x80);
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    return true;
}

static size_t entries_of(const char *folder)
{
    glob_t found;
    char pattern[PATH_MAX + 16];
    snprintf(pattern, sizeof pattern, "%s/%s/*", pool_path, folder);
    size_t count = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    if (count)
        globfree(&found);
    return count;
}

/* A loop device goes when its last user does, which is not at once. */
static void settle(void)
{
    for (unsigned i = 0; i < 1000 && loops_here() != mounts_here(); i++)
        usleep(1000);
}

/* A child that the victim was just spawning has its locks until it becomes mkfs: so a first look may come too early. */
static void empty(struct space *s)
{
    must(space_empty_trash(s, &err));
    for (unsigned i = 0; i < 1000 && entries_of("making") > 0; i++) {
        usleep(1000);
        must(space_empty_trash(s, &err));
    }
}

/* Opens the pool as after a restart; what is there must be whole. Volumes in it. */
static size_t check_pool(uint64_t *ret_capacity)
{
    struct space_entry *list = NULL;
    struct space_usage u;
    size_t count = 0;
    settle();
    auto_space s = open_pool(pool_path);
    empty(s);
    assert_int_equal(entries_of("making"), 0);
    assert_int_equal(entries_of("trash"), 0);
    must(space_usage(s, &u, &err));
    must(space_list(s, STR(""), 10, &list, &count, &err));
    assert_int_equal(u.volumes, count);
    assert_in_range(count, 0, 1);
    *ret_capacity = 0;
    if (count == 1) {
        auto_volume v = NULL;
        struct volume_usage usage;
        must(space_attach(s, str_of(list[0].id), &err));
        must(space_find(s, str_of(list[0].id), &v, &err));
        must(volume_usage(v, &usage, &err));
        assert_int_equal(u.allocated_bytes, v->spec->capacity_bytes);
        assert_in_range(usage.total_bytes, v->spec->capacity_bytes / 2, v->spec->capacity_bytes);
        *ret_capacity = v->spec->capacity_bytes;
        memcpy(victim_id, v->spec->id, sizeof victim_id);
    }
    space_entries_free(list, count);
    settle();
    assert_int_equal(loops_here(), 1 + count); /* the pool's own disk is one */
    assert_int_equal(mounts_here(), 1 + count);
    return count;
}

/* The orphaned mkfs may still have the removed image open. */
static void check_freed(uint64_t before)
{
    uint64_t now = free_bytes(pool_path);
    for (unsigned i = 0; i < 1000 && now + MIB < before; i++) {
        usleep(1000);
        now = free_bytes(pool_path);
    }
    assert_in_range(now, before - MIB, before + MIB);
}

static void remove_victim(void)
{
    auto_space s = open_pool(pool_path);
    must(space_delete(s, str_of(victim_id), &err));
    must(space_empty_trash(s, &err));
}

static void make_victim(void)
{
    auto_space s = open_pool(pool_path);
    must(act_create(s, &err));
    auto_volume v = NULL;
    must(space_find_name(s, STR("victim"), &v, &err));
    memcpy(victim_id, v->spec->id, sizeof victim_id);
}

static void a_create_killed_anywhere_leaves_all_or_nothing(void **state)
{
    (void)state;
    uint64_t capacity, before = free_bytes(pool_path);
    bool seen_none = false, seen_whole = false;
    for (unsigned n = 1; killed_at(act_create, n); n++) {
        size_t count = check_pool(&capacity);
        *(count ? &seen_whole : &seen_none) = true;
        if (count) {
            assert_int_equal(capacity, 16 * MIB);
            remove_victim();
        }
        check_freed(before);
    }
    assert_true(seen_none && seen_whole);
    assert_int_equal(check_pool(&capacity), 1);
    remove_victim();
}

static void a_growth_killed_anywhere_is_finished_or_not_begun(void **state)
{
    (void)state;
    uint64_t capacity;
    bool seen_old = false, seen_new = false, more = true;
    for (unsigned n = 1; more; n++) {
        make_victim();
        more = killed_at(act_grow, n);
        assert_int_equal(check_pool(&capacity), 1);
        assert_true(capacity == 16 * MIB || capacity == 32 * MIB);
        *(capacity == 16 * MIB ? &seen_old : &seen_new) = true;
        remove_victim();
    }
    assert_true(seen_old && seen_new);
}

static void a_delete_killed_anywhere_frees_every_byte_in_the_end(void **state)
{
    (void)state;
    uint64_t capacity, before = free_bytes(pool_path);
    bool more = true;
    for (unsigned n = 1; more; n++) {
        make_victim();
        more = killed_at(act_delete, n);
        if (check_pool(&capacity))
            remove_victim();
        check_freed(before);
    }
}

static struct pool_at disk;

static int enter(void **state)
{
    if (enter_place(state) != 0)
        return -1;
    make_pool_disk(&disk, "crash", 400 * MIB);
    snprintf(pool_path, sizeof pool_path, "%s", disk.path);
    space_close(open_pool(pool_path));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_create_killed_anywhere_leaves_all_or_nothing),
        cmocka_unit_test(a_growth_killed_anywhere_is_finished_or_not_begun),
        cmocka_unit_test(a_delete_killed_anywhere_frees_every_byte_in_the_end),
    };
    return cmocka_run_group_tests(tests, enter, leave_place);
}
