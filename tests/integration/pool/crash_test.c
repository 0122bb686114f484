/* SPDX-License-Identifier: Apache-2.0 */
/* The process dies before each system call of create, grow and delete in turn; then the pool is opened again. It must
 * be as before the call or as after it, with nothing leaked and nothing promised twice. */
#include "victim.h"

static int play_once(struct pool *p, act *a, int told)
{
    struct err err = {0};
    (void)told;
    return a(p, &err) < 0 ? 1 : 0;
}

/* Kills the act before its `n`th system call. False: it ended on its own before that. */
static bool killed_at(act *a, unsigned n)
{
    int status, code;
    pid_t pid = start_victim(play_once, a, -1);
    for (unsigned stops = 0; stops < 2 * n - 1; stops++)
        if (!next_stop(pid, &code)) {
            assert_int_equal(code, 0);
            return false;
        }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    return true;
}

static void a_create_killed_anywhere_leaves_all_or_nothing(void **state)
{
    (void)state;
    uint64_t capacity, before = free_bytes(pool_dir);
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
    uint64_t capacity, before = free_bytes(pool_dir);
    bool more = true;
    for (unsigned n = 1; more; n++) {
        make_victim();
        more = killed_at(act_delete, n);
        if (check_pool(&capacity))
            remove_victim();
        check_freed(before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_create_killed_anywhere_leaves_all_or_nothing),
        cmocka_unit_test(a_growth_killed_anywhere_is_finished_or_not_begun),
        cmocka_unit_test(a_delete_killed_anywhere_frees_every_byte_in_the_end),
    };
    return cmocka_run_group_tests(tests, enter_pool, leave_place);
}
