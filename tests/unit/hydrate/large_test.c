/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"
#include <sys/stat.h>

enum { ID = 5 };
#define BYTES (2 * (uint64_t)PLAN_PART_BYTES + 1000) /* three parts */

static struct digest digest_of_zeros(uint64_t len)
{
    static const char zeros[64 << 10];
    struct hash h;
    struct digest d;
    hash_init(&h);
    hash_begin(&h, HASH_CRC32C);
    for (uint64_t n; len > 0; len -= n)
        hash_update(&h, zeros, n = min_u64(len, sizeof zeros));
    hash_end(&h, &d);
    hash_done(&h);
    return d;
}

static void begin(const struct digest *want)
{
    struct index_entry e = {.path = STR("folder/big"), .size_bytes = BYTES, .mtime_ns = 5000000000, .digest = *want};
    run->o.direct = HYDRATE_DIRECT_OFF;
    run->queue.active++; /* hydrate_queue_take() counts it */
    large_begin(lane, ID, &e);
}

static void begin_right(void)
{
    struct digest want = digest_of_zeros(BYTES);
    begin(&want);
}

static struct hydrate_large *take_parts(uint32_t *ret_part)
{
    struct hydrate_large *g;
    pthread_mutex_lock(&run->queue.lock);
    bool any = hydrate_queue_next_part(&run->queue, &g, ret_part);
    pthread_mutex_unlock(&run->queue.lock);
    return any ? g : NULL;
}

static void part_done(struct hydrate_large *g, uint32_t part)
{
    uint64_t offset, len;
    plan_part(BYTES, part, &offset, &len);
    struct digest d = digest_of_zeros(len);
    large_part_done(lane, g, part, &d);
}

/* The run ends while some parts were not handed out, and the next run begins. */
static void begin_next_run(void)
{
    struct err err;
    large_stop(lane);
    assert_int_equal(run->queue.active, 0);
    assert_int_equal(journal_flush(run->journal, &err), 0);
    journal_free(run->journal);
    assert_int_equal(journal_open(dir, run_uid, PLAN_PART_BYTES, run_boot, &run->journal, &err), 0);
    atomic_store(&run->progress.bytes_done, 0);
}

static off_t size_of(const char *name)
{
    struct stat st;
    return fstatat(run_data, name, &st, 0) == 0 ? st.st_size : -1;
}

static void each_part_is_given_out_once_and_they_may_end_in_any_order(void **state)
{
    (void)state;
    struct hydrate_large *g = NULL;
    uint32_t part;
    begin_right();
    for (uint32_t want = 0; want < 3; want++) {
        g = take_parts(&part);
        assert_non_null(g);
        assert_int_equal(part, want);
    }
    assert_null(take_parts(&part));
    part_done(g, 2);
    part_done(g, 0);
    assert_int_equal(atomic_load(&run->progress.objects_done), 0);
    assert_int_equal(atomic_load(&run->progress.bytes_done), 1000 + PLAN_PART_BYTES);
    part_done(g, 1);
    assert_int_equal(atomic_load(&run->progress.objects_done), 1);
    assert_int_equal(atomic_load(&run->progress.bytes_done), BYTES);
    assert_int_equal(run->queue.active, 0);
    assert_true(journal_is_whole(run->journal, ID));
    assert_int_equal(size_of("folder/big"), BYTES);
}

static void all_done(void)
{
    uint32_t part;
    for (int i = 0; i < 3; i++) {
        struct hydrate_large *g = take_parts(&part);
        assert_non_null(g);
        part_done(g, part);
    }
}

static void wrong_checksum_is_fetched_once_more_and_then_reported(void **state)
{
    (void)state;
    struct digest wrong = digest_of_zeros(BYTES - 1);
    struct hydrate_fault f;
    begin(&wrong);
    all_done();
    assert_int_equal(atomic_load(&run->progress.objects_failed), 0);
    assert_int_equal(atomic_load(&run->progress.bytes_done), 0); /* the wrong part is unknown */
    all_done();
    assert_int_equal(atomic_load(&run->progress.objects_failed), 1);
    assert_int_equal(atomic_load(&run->progress.objects_done), 0);
    assert_true(hydrate_next_fault(run, &f));
    assert_string_equal(f.object, "folder/big");
    assert_int_equal(f.id, 1422);
    assert_int_equal(run->queue.active, 0);
    assert_int_equal(size_of("folder/big"), -1);
    assert_false(journal_has_parts(run->journal, ID));
}

static void after_a_part_that_failed_no_more_are_given_out_and_the_last_one_ends_it(void **state)
{
    (void)state;
    struct err err = {0};
    struct hydrate_fault f;
    uint32_t first, second, part;
    begin_right();
    struct hydrate_large *g = take_parts(&first);
    assert_ptr_equal(take_parts(&second), g);
    err_set(&err, ERR_DENIED, "403 for folder/big");
    large_part_failed(lane, g, FAULT_OTHER, &err, 4);
    assert_null(take_parts(&part));
    assert_int_equal(run->queue.active, 1);
    part_done(g, second);
    assert_int_equal(run->queue.active, 0);
    assert_true(hydrate_next_fault(run, &f));
    assert_int_equal(f.attempts, 4);
    assert_int_equal(f.code, ERR_DENIED);
    assert_int_equal(atomic_load(&run->progress.bytes_done), 0);
}

static void parts_of_an_earlier_run_are_not_fetched_again(void **state)
{
    (void)state;
    uint32_t part;
    begin_right();
    struct hydrate_large *g = take_parts(&part);
    part_done(g, part);
    begin_next_run();
    begin_right();
    assert_int_equal(atomic_load(&run->progress.bytes_done), PLAN_PART_BYTES);
    g = take_parts(&part);
    assert_int_equal(part, 1);
    part_done(g, 1);
    g = take_parts(&part);
    assert_int_equal(part, 2);
    part_done(g, 2);
    assert_int_equal(atomic_load(&run->progress.objects_done), 1);
}

static void stop_run(void)
{
    atomic_store(&run->stopping, true);
    large_stop(lane);
}

static void assert_let_go(void)
{
    assert_int_equal(run->queue.active, 0);
    assert_true(list_is_empty(&run->queue.larges));
}

static void a_part_that_ends_well_after_another_was_dropped_by_a_stop_ends_the_object_too(void **state)
{
    (void)state;
    uint32_t first, second;
    begin_right();
    struct hydrate_large *g = take_parts(&first);
    assert_ptr_equal(take_parts(&second), g);
    stop_run();
    large_part_dropped(lane, g);
    part_done(g, second); /* it was on its way to the disk */
    assert_let_go();
}

static void the_last_part_on_its_way_when_a_run_stops_ends_an_object_with_parts_left(void **state)
{
    (void)state;
    uint32_t part;
    begin_right();
    struct hydrate_large *g = take_parts(&part);
    stop_run();
    part_done(g, part);
    assert_let_go();
}

static void a_wrong_checksum_while_a_run_stops_begins_nothing_again(void **state)
{
    (void)state;
    uint32_t part;
    struct digest wrong = digest_of_zeros(BYTES - 1);
    struct hydrate_large *g = NULL;
    begin(&wrong);
    for (int i = 0; i < 3; i++)
        g = take_parts(&part);
    stop_run();
    for (part = 0; part < 3; part++)
        part_done(g, part);
    assert_let_go();
}

static void parts_of_a_removed_file_are_not_trusted(void **state)
{
    (void)state;
    uint32_t part;
    begin_right();
    struct hydrate_large *g = take_parts(&part);
    part_done(g, part);
    begin_next_run();
    assert_int_equal(unlinkat(run_data, "folder/big", 0), 0);
    begin_right();
    assert_int_equal(atomic_load(&run->progress.bytes_done), 0);
    g = take_parts(&part);
    assert_int_equal(part, 0);
    large_part_dropped(lane, g);
    assert_int_equal(run->queue.active, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, run_setup, run_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_part_is_given_out_once_and_they_may_end_in_any_order),
        TEST(wrong_checksum_is_fetched_once_more_and_then_reported),
        TEST(after_a_part_that_failed_no_more_are_given_out_and_the_last_one_ends_it),
        TEST(parts_of_an_earlier_run_are_not_fetched_again),
        TEST(a_part_that_ends_well_after_another_was_dropped_by_a_stop_ends_the_object_too),
        TEST(the_last_part_on_its_way_when_a_run_stops_ends_an_object_with_parts_left),
        TEST(a_wrong_checksum_while_a_run_stops_begins_nothing_again),
        TEST(parts_of_a_removed_file_are_not_trusted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
