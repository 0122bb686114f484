/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/seal.h"
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_sealed(void)
{
    struct rlimit limit;
    return prctl(PR_GET_DUMPABLE) == 0 && getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_max == 0;
}

/* In a child: there is no way back. */
static void a_sealed_process_leaves_no_core_and_its_programs_no_core_file(void **state)
{
    (void)state;
    int status;
    assert_false(is_sealed());
    pid_t child = fork();
    if (child == 0) {
        seal_process();
        _exit(is_sealed() ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sealed_process_leaves_no_core_and_its_programs_no_core_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
