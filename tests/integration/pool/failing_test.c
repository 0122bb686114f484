/* SPDX-License-Identifier: Apache-2.0 */
/* Each system call of create, grow and delete fails once: the call succeeds all the same, or returns an error. Repeated
 * in the same process it succeeds, and the pool that is opened next holds exactly that. The errors take turns.
 * CISTERN_FAIL_EVERY (13) is the step; 1 fails them all. */
#include "victim.h"
#include <elf.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>

static const int errors[] = {EIO, ENOSPC, EDQUOT, EROFS, EMFILE, ENOMEM, EINTR};

/* Refused memory ends a program by design; time, signals, waiting and small random numbers do not fail.
 * A close that fails has closed, which cannot be played from here. */
static bool may_fail(uint64_t call)
{
    static const unsigned never[] = {
        SYS_brk,    SYS_mmap,          SYS_munmap,          SYS_mprotect,     SYS_madvise,
        SYS_futex,  SYS_rt_sigaction,  SYS_rt_sigprocmask,  SYS_rt_sigreturn, SYS_wait4,
        SYS_waitid, SYS_exit,          SYS_exit_group,      SYS_close,        SYS_getpid,
        SYS_gettid, SYS_clock_gettime, SYS_clock_nanosleep, SYS_getrandom,    SYS_restart_syscall};
    for (size_t i = 0; i < countof(never); i++)
        if (call == never[i])
            return false;
    return true;
}

/* At its beginning: nothing is called. At its end: it fails with `errnum`. */
static void spoil(pid_t pid, int errnum)
{
#ifdef __x86_64__
    struct user_regs_struct regs;
    assert_int_equal(ptrace(PTRACE_GETREGS, pid, 0, &regs), 0);
    *(errnum ? &regs.rax : &regs.orig_rax) = (unsigned long long)(errnum ? -errnum : -1);
    assert_int_equal(ptrace(PTRACE_SETREGS, pid, 0, &regs), 0);
#elif defined __aarch64__
    struct user_regs_struct regs;
    int none = -1;
    struct iovec number = {&none, sizeof none}, all = {&regs, sizeof regs};
    if (!errnum) {
        assert_int_equal(ptrace(PTRACE_SETREGSET, pid, NT_ARM_SYSTEM_CALL, &number), 0);
        return;
    }
    assert_int_equal(ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &all), 0);
    regs.regs[0] = (unsigned long long)-errnum;
    assert_int_equal(ptrace(PTRACE_SETREGSET, pid, NT_PRSTATUS, &all), 0);
#else
#error "say here how a system call is made to fail"
#endif
}

enum { PLAYED_WELL, PLAYED_AGAIN, PLAYED_BADLY };

/* Writes the first and the second error to the pipe `told`. */
static int play_again(struct pool *p, act *a, int told)
{
    struct err err = {0};
    if (a(p, &err) == 0)
        return PLAYED_WELL;
    dprintf(told, "%s", err.text);
    if (a(p, &err) == 0)
        return PLAYED_AGAIN;
    dprintf(told, ", and then: %s", err.text);
    return PLAYED_BADLY;
}

/* False: the act has fewer calls than that. */
static bool failed_at(act *a, unsigned n, int errnum)
{
    struct __ptrace_syscall_info info = {0};
    int told[2], code = -1;
    assert_int_equal(pipe(told), 0);
    pid_t pid = start_victim(play_again, a, told[1]);
    close(told[1]);
    bool met = false, more;
    unsigned seen = 0;
    while ((more = next_stop(pid, &code)) && !met) {
        assert_true(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) > 0);
        met = info.op == PTRACE_SYSCALL_INFO_ENTRY && may_fail(info.entry.nr) && ++seen == n;
        if (!met)
            continue;
        spoil(pid, 0);
        assert_true(next_stop(pid, &code));
        spoil(pid, errnum);
    }
    while (more)
        more = next_stop(pid, &code);
    char text[1024] = "";
    ssize_t len = read(told[0], text, sizeof text - 1);
    close(told[0]);
    if (code == PLAYED_BADLY || (code == PLAYED_AGAIN && len <= 0))
        fail_msg("call %u (%llu) failed with '%s': %s", n, (unsigned long long)info.entry.nr, strerrorname_np(errnum),
                 text);
    return met;
}

static unsigned step(void)
{
    const char *text = getenv("CISTERN_FAIL_EVERY");
    return text ? (unsigned)strtoul(text, NULL, 10) : 13;
}

static void a_create_survives_the_failure_of_any_call(void **state)
{
    (void)state;
    uint64_t capacity, before = free_bytes(pool_dir);
    bool more = true;
    for (unsigned n = 1; more; n += step()) {
        more = failed_at(act_create, n, errors[n % countof(errors)]);
        assert_int_equal(check_pool(&capacity), 1);
        assert_int_equal(capacity, 16 * MIB);
        remove_victim();
        check_freed(before);
    }
}

static void a_growth_survives_the_failure_of_any_call(void **state)
{
    (void)state;
    uint64_t capacity;
    bool more = true;
    for (unsigned n = 1; more; n += step()) {
        make_victim();
        more = failed_at(act_grow, n, errors[n % countof(errors)]);
        assert_int_equal(check_pool(&capacity), 1);
        assert_int_equal(capacity, 32 * MIB);
        remove_victim();
    }
}

static void a_delete_survives_the_failure_of_any_call(void **state)
{
    (void)state;
    uint64_t capacity, before = free_bytes(pool_dir);
    bool more = true;
    for (unsigned n = 1; more; n += step()) {
        make_victim();
        more = failed_at(act_delete, n, errors[n % countof(errors)]);
        assert_int_equal(check_pool(&capacity), 0);
        check_freed(before);
    }
}

/* In a cluster the order brings the id: what a first try left must not be in the way of the second, nor of its end. */
static int act_order(struct pool *p, struct err *err)
{
    auto_spec want = wanted("victim", 16 * MIB);
    auto_volume v = NULL;
    snprintf(want->id.text, sizeof want->id.text, "v1-%s-%012x", pool_uuid(p), 1);
    int r = pool_create_volume(p, want, 0, &v, err);
    return r < 0 ? r : pool_delete_volume(p, &v->spec->id, err);
}

static void an_order_that_failed_at_any_call_can_be_made_and_deleted(void **state)
{
    (void)state;
    uint64_t capacity, before = free_bytes(pool_dir);
    bool more = true;
    for (unsigned n = 1; more; n += step()) {
        more = failed_at(act_order, n, errors[n % countof(errors)]);
        assert_int_equal(check_pool(&capacity), 0);
        check_freed(before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_order_that_failed_at_any_call_can_be_made_and_deleted),
        cmocka_unit_test(a_create_survives_the_failure_of_any_call),
        cmocka_unit_test(a_growth_survives_the_failure_of_any_call),
        cmocka_unit_test(a_delete_survives_the_failure_of_any_call),
    };
    return cmocka_run_group_tests(tests, enter_pool, leave_place);
}
