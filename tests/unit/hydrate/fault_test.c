/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "private.h"

/* A run without threads: what went wrong is only written down. */
static struct hydrate *run_new(uint64_t errors_max)
{
    struct hydrate *h = xcalloc(1, sizeof *h);
    pthread_mutex_init(&h->lock, NULL);
    h->o.errors_max = errors_max;
    h->faults = xcalloc(FAULTS_MAX, sizeof *h->faults);
    h->first_faults = xcalloc(HYDRATE_ERRORS_KEPT, sizeof *h->first_faults);
    atomic_store(&h->is_drained_posted, true); /* the driver has been called already */
    return h;
}

static void run_free(struct hydrate *h)
{
    pthread_mutex_destroy(&h->lock);
    free(h->faults);
    free(h->first_faults);
    free(h);
}

static struct err error(enum err_code code, const char *text)
{
    struct err err;
    (void)!err_set(&err, code, "%s", text);
    return err;
}

static void a_fault_of_the_disk_ends_the_run_and_one_of_an_object_does_not(void **state)
{
    (void)state;
    static const int disk[] = {ENOSPC, EDQUOT, EROFS, EIO, ENODEV, ENXIO, EMFILE, ENFILE, ENOMEM};
    static const int object[] = {EISDIR, ENOTDIR, ENAMETOOLONG, EACCES, ELOOP, ECONNRESET};
    for (size_t i = 0; i < countof(disk); i++)
        assert_true(fault_is_fatal(&(struct err){.sys = disk[i]}));
    for (size_t i = 0; i < countof(object); i++)
        assert_false(fault_is_fatal(&(struct err){.sys = object[i]}));
    assert_false(fault_is_fatal(&(struct err){.code = ERR_IO})); /* no system call failed: a connection */
}

static void the_first_fault_of_a_run_is_its_reason(void **state)
{
    (void)state;
    struct hydrate *h = run_new(0);
    struct err first = error(ERR_NO_SPACE, "the disk is full"), second = error(ERR_IO, "the rest follows");
    hydrate_fail(h, &first);
    hydrate_fail(h, &second);
    assert_true(h->has_fatal && atomic_load(&h->stopping));
    assert_string_equal(h->fatal.text, "the disk is full");
    run_free(h);
}

static void to_be_stopped_is_no_fault_and_hides_none(void **state)
{
    (void)state;
    struct err stopped = error(ERR_CANCELLED, "cancelled"), full = error(ERR_NO_SPACE, "the disk is full");
    struct hydrate *h = run_new(0);
    h->is_cancelled = true;
    hydrate_fail(h, &stopped);
    assert_false(h->has_fatal);
    hydrate_fail(h, &full);
    assert_true(h->has_fatal && h->fatal.code == ERR_NO_SPACE);
    run_free(h);
    h = run_new(0);
    hydrate_fail(h, &stopped); /* by nobody's wish */
    assert_true(h->has_fatal && h->fatal.code == ERR_CANCELLED);
    run_free(h);
}

static void an_object_is_named_once(void **state)
{
    (void)state;
    struct hydrate *h = run_new(0);
    struct hydrate_fault f;
    struct err bare = error(ERR_DENIED, "access denied"), named = error(ERR_IO, "cannot write 'a/b'");
    hydrate_object_failed(h, STR("a/b"), &bare, 3);
    hydrate_object_failed(h, STR("a/b"), &named, 1);
    assert_true(hydrate_next_fault(h, &f));
    assert_string_equal(f.object, "a/b");
    assert_int_equal(f.attempts, 3);
    assert_non_null(strstr(f.message, "a/b: access denied"));
    assert_true(hydrate_next_fault(h, &f));
    assert_null(strstr(f.message, "a/b: "));
    assert_false(hydrate_next_fault(h, &f));
    run_free(h);
}

static void a_run_gives_up_when_more_fail_than_it_may(void **state)
{
    (void)state;
    struct hydrate *h = run_new(3);
    struct err err = error(ERR_DENIED, "access denied");
    for (int i = 0; i < 3; i++)
        hydrate_object_failed(h, STR("a"), &err, 1);
    assert_false(h->has_fatal);
    hydrate_object_failed(h, STR("last"), &err, 1);
    assert_true(h->has_fatal);
    assert_int_equal(h->fatal.code, ERR_DENIED);
    assert_non_null(strstr(h->fatal.text, "gave up after 4"));
    assert_non_null(strstr(h->fatal.text, "last"));
    run_free(h);
}

static void faults_that_nobody_reads_are_counted_and_no_more_kept_than_there_is_room_for(void **state)
{
    (void)state;
    struct hydrate *h = run_new(UINT64_MAX);
    struct err err = error(ERR_IO, "no");
    unsigned read = 0;
    struct hydrate_fault f;
    for (int i = 0; i < 3 * FAULTS_MAX; i++)
        hydrate_object_failed(h, STR("a"), &err, 1);
    while (hydrate_next_fault(h, &f))
        read++;
    assert_int_equal(read, FAULTS_MAX);
    assert_int_equal(h->first_fault_count, HYDRATE_ERRORS_KEPT);
    assert_int_equal(atomic_load(&h->objects_failed), 3 * FAULTS_MAX);
    hydrate_object_failed(h, STR("after"), &err, 1);
    assert_true(hydrate_next_fault(h, &f));
    assert_string_equal(f.object, "after");
    run_free(h);
}

static void a_reason_is_common_when_every_object_had_it(void **state)
{
    (void)state;
    struct hydrate *h = run_new(0);
    struct err denied = error(ERR_DENIED, "no"), away = error(ERR_IO, "no");
    assert_int_equal(hydrate_common_fault(h), 0);
    hydrate_object_failed(h, STR("a"), &denied, 1);
    hydrate_object_failed(h, STR("b"), &denied, 1);
    assert_int_equal(hydrate_common_fault(h), ERR_DENIED);
    hydrate_object_failed(h, STR("c"), &away, 1);
    assert_int_equal(hydrate_common_fault(h), 0);
    run_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_of_the_disk_ends_the_run_and_one_of_an_object_does_not),
        cmocka_unit_test(the_first_fault_of_a_run_is_its_reason),
        cmocka_unit_test(to_be_stopped_is_no_fault_and_hides_none),
        cmocka_unit_test(an_object_is_named_once),
        cmocka_unit_test(a_run_gives_up_when_more_fail_than_it_may),
        cmocka_unit_test(faults_that_nobody_reads_are_counted_and_no_more_kept_than_there_is_room_for),
        cmocka_unit_test(a_reason_is_common_when_every_object_had_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
