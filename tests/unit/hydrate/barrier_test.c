/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

static int setup(void **state)
{
    struct err err;
    int r = run_setup(state);
    struct index_source source = {.text = STR("s3://bucket/prefix/")};
    run->barrier.fs_fd = run_data;
    if (r == 0)
        r = thread_pool_new(1, &run->threads, &err);
    return r < 0 ? r : index_create(dir, &source, &run->index, &err);
}

static int teardown(void **state)
{
    thread_pool_free(run->threads);
    return run_teardown(state);
}

/* After a power loss: another boot, in which records without a barrier are not trusted. */
static bool survives_a_power_loss(uint64_t id)
{
    static const uint8_t other_boot[16] = "the next boot";
    struct err err;
    journal_free(run->journal);
    run->journal = NULL;
    assert_int_equal(journal_open(dir, run_uid, PLAN_PART_BYTES, other_boot, &run->journal, &err), 0);
    return journal_is_whole(run->journal, id);
}

static void files_written_before_a_barrier_survive_a_power_loss(void **state)
{
    (void)state;
    struct err err;
    journal_written(run->journal, 3);
    atomic_store(&run->barrier.unsynced_bytes, 1000);
    assert_int_equal(barrier_run(run, &err), 0);
    assert_int_equal(atomic_load(&run->barrier.unsynced_bytes), 0);
    assert_true(survives_a_power_loss(3));
}

static void a_barrier_that_failed_covers_nothing(void **state)
{
    (void)state;
    struct err err;
    journal_written(run->journal, 3);
    run->barrier.fs_fd = -1;
    assert_true(barrier_run(run, &err) < 0);
    assert_non_null(strstr(err.text, "cannot make the files durable"));
    assert_true(journal_flush(run->journal, &err) < 0); /* nothing is taken behind it */
    assert_false(survives_a_power_loss(3));
}

static bool begins(void)
{
    barrier_tick(run);
    return run->barrier.is_running;
}

static void it_comes_in_its_time_and_only_if_there_is_something_to_lose(void **state)
{
    (void)state;
    run->o.barrier_ns = 5 * NS_PER_SECOND;
    run->barrier.ended_ns = loop_now_ns(run->coordinator.loop) - 60 * NS_PER_SECOND;
    assert_false(begins());
    atomic_store(&run->barrier.unsynced_bytes, 1);
    run->barrier.ended_ns = loop_now_ns(run->coordinator.loop) - NS_PER_SECOND;
    assert_false(begins());
    run->barrier.ended_ns = loop_now_ns(run->coordinator.loop) - 6 * NS_PER_SECOND;
    assert_true(begins());
}

static void very_much_does_not_wait_for_its_time(void **state)
{
    (void)state;
    run->barrier.ended_ns = loop_now_ns(run->coordinator.loop);
    atomic_store(&run->barrier.unsynced_bytes, (UINT64_C(4) << 30) - 1);
    assert_false(begins());
    atomic_store(&run->barrier.unsynced_bytes, UINT64_C(4) << 30);
    assert_true(begins());
}

static void there_is_one_at_a_time_and_none_beside_the_end(void **state)
{
    (void)state;
    atomic_store(&run->barrier.unsynced_bytes, UINT64_C(8) << 30);
    run->barrier.is_running = true;
    barrier_tick(run);
    assert_null(run->barrier.work.run); /* it was not begun again */
    run->barrier.is_running = false;
    run->coordinator.state = COORDINATOR_FINISHING;
    assert_false(begins());
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_written_before_a_barrier_survive_a_power_loss),
        TEST(a_barrier_that_failed_covers_nothing),
        TEST(it_comes_in_its_time_and_only_if_there_is_something_to_lose),
        TEST(very_much_does_not_wait_for_its_time),
        TEST(there_is_one_at_a_time_and_none_beside_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
