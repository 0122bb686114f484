/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "run.h"
#include "util/cgroup.h"

static const uint64_t mib = 1 << 20;

static void without_a_limit_it_is_what_is_fast(void **state)
{
    (void)state;
    struct err err;
    struct hydrate_options o = {0};
    assert_int_equal(memory_defaults(&o, CGROUP_NO_LIMIT, &err), 0);
    assert_int_equal(o.memory_bytes, 128 * mib);
    assert_int_equal(o.concurrency_max, WINDOW_MAX);
}

static void under_a_limit_buffers_and_requests_take_a_part_of_it(void **state)
{
    (void)state;
    struct err err;
    struct hydrate_options o = {0};
    assert_int_equal(memory_defaults(&o, 128 * mib, &err), 0);
    assert_int_equal(o.memory_bytes, 32 * mib);
    assert_true(o.concurrency_max >= WINDOW_START && o.concurrency_max <= 128);
}

static void defaults_keep_given_options(void **state)
{
    (void)state;
    struct err err;
    struct hydrate_options o = {.memory_bytes = 8 * mib};
    assert_int_equal(memory_defaults(&o, 16 * mib, &err), 0);
    assert_int_equal(o.memory_bytes, 8 * mib);
    o = (struct hydrate_options){.concurrency_max = 300};
    assert_int_equal(memory_defaults(&o, 128 * mib, &err), 0);
    assert_int_equal(o.concurrency_max, 300);
}

static void a_run_that_begins_is_not_silent_since_the_run_before(void **state)
{
    (void)state;
    static struct hydrate_status s;
    struct err err;
    const enum hydrate_phase phases[] = {HYDRATE_FETCHING, HYDRATE_DONE};
    for (size_t i = 0; i < countof(phases); i++) {
        s = (struct hydrate_status){.phase = phases[i], .updated_ns = 1};
        assert_int_equal(hydrate_status_write(dir, &s, &err), 0);
        progress_begin(run);
        assert_int_equal(hydrate_status_read(dir, &s, &err), 0);
        assert_int_equal(s.phase, phases[i]);
        assert_int_equal(s.updated_ns > 1, phases[i] < HYDRATE_DONE);
    }
}

static void too_little_is_a_sentence(void **state)
{
    (void)state;
    struct err err;
    struct hydrate_options o = {0};
    assert_int_equal(memory_defaults(&o, 30 * mib, &err), -ERR_NO_SPACE);
    assert_int_equal(err.id, 1516);
    assert_non_null(strstr(err.text, "30.0 MiB"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_limit_it_is_what_is_fast),
        cmocka_unit_test(under_a_limit_buffers_and_requests_take_a_part_of_it),
        cmocka_unit_test(defaults_keep_given_options),
        cmocka_unit_test_setup_teardown(a_run_that_begins_is_not_silent_since_the_run_before, run_setup, run_teardown),
        cmocka_unit_test(too_little_is_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
