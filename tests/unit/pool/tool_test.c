/* SPDX-License-Identifier: Apache-2.0 */
#include "tool.h"
#include "unit.h"
#include <signal.h>
#include <string.h>

static int run(const char *script, struct err *err)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    return tool_run(argv, err);
}

static void a_tool_that_works_is_quiet(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(run("echo hello; cat", &err), 0);
}

static void the_last_line_it_said_is_the_reason(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(run("yes noise | head -c 100000; echo; echo 'disk on fire' >&2; exit 3", &err), -ERR_IO);
    assert_string_equal(err.text, "'sh' ended with status 3: disk on fire");
    assert_int_equal(run("exit 1", &err), -ERR_IO);
    assert_string_equal(err.text, "'sh' ended with status 1: ");
}

static void killed_tool_is_reported_as_killed(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(run("kill -9 $$", &err), -ERR_IO);
    assert_string_equal(err.text, "'sh' was killed by signal 9");
}

static void missing_tool_is_named_with_advice(void **state)
{
    (void)state;
    struct err err = {0};
    const char *const argv[] = {"mkfs.none", NULL};
    assert_int_equal(tool_run(argv, &err), -ERR_UNSUPPORTED);
    assert_int_equal(err.id, 2025);
    assert_non_null(strstr(err.text, "mkfs.none"));
}

static void blocked_signals_are_not_handed_down(void **state)
{
    (void)state;
    struct err err = {0};
    sigset_t all, old;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &old);
    int r = run("kill -TERM $$; sleep 1; exit 0", &err);
    sigprocmask(SIG_SETMASK, &old, NULL);
    assert_int_equal(r, -ERR_IO);
    assert_string_equal(err.text, "'sh' was killed by signal 15");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tool_that_works_is_quiet),          cmocka_unit_test(the_last_line_it_said_is_the_reason),
        cmocka_unit_test(killed_tool_is_reported_as_killed),   cmocka_unit_test(missing_tool_is_named_with_advice),
        cmocka_unit_test(blocked_signals_are_not_handed_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
