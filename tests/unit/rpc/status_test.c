/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"
#include "unit.h"

static void every_error_has_a_status_and_none_is_ok(void **state)
{
    (void)state;
    for (enum err_code c = ERR_NOT_FOUND; c <= ERR_ABSENT; c++) {
        assert_int_not_equal(rpc_status_of(c), 0);
        assert_string_not_equal(rpc_status_name(rpc_status_of(c)), "Unknown");
    }
}

static void statuses_that_the_provisioner_acts_on_are_exact(void **state)
{
    (void)state;
    assert_int_equal(rpc_status_of(ERR_NO_SPACE), 8); /* the provisioner goes to another node */
    assert_int_equal(rpc_status_of(ERR_PENDING), 10); /* it comes back to the same one */
    assert_int_equal(rpc_status_of(ERR_AGAIN), 14);
    assert_int_equal(rpc_status_of(ERR_INVALID), 3);
    assert_int_equal(rpc_status_of(ERR_NOT_FOUND), 5);
    assert_int_equal(rpc_status_of(ERR_EXISTS), 6);
    assert_int_equal(rpc_status_of(ERR_BUSY), 9);
    assert_int_equal(rpc_status_of(ERR_ABSENT), 9); /* never NOT_FOUND: that would mean deleted */
    assert_int_equal(rpc_status_of(ERR_RANGE), 11);
    assert_string_equal(rpc_status_name(9), "FailedPrecondition");
}

static void unknown_code_is_internal(void **state)
{
    (void)state;
    assert_int_equal(rpc_status_of(0), 13);
    assert_int_equal(rpc_status_of(999), 13);
    assert_string_equal(rpc_status_name(-1), "Unknown");
    assert_string_equal(rpc_status_name(99), "Unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_error_has_a_status_and_none_is_ok),
        cmocka_unit_test(statuses_that_the_provisioner_acts_on_are_exact),
        cmocka_unit_test(unknown_code_is_internal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
