/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "private.h"
#include "util/clock.h"

/* A run without threads: what went wrong is only written down. */
static struct hydrate *run_new(uint64_t errors_max)
{
    struct hydrate *h = xcalloc(1, sizeof *h);
    faults_init(&h->faults);
    h->o.errors_max = errors_max;
    atomic_store(&h->coordinator.is_check_posted, true); /* the driver has been called already */
    return h;
}

static void run_free(struct hydrate *h)
{
    faults_done(&h->faults);
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
    run_failed(h, FAULT_OTHER, &first);
    run_failed(h, FAULT_OTHER, &second);
    assert_true(h->faults.has_fatal && atomic_load(&h->stopping));
    assert_string_equal(h->faults.fatal.text, "the disk is full");
    run_free(h);
}

static void cancelled_run_has_no_fault_and_hides_none(void **state)
{
    (void)state;
    struct err stopped = error(ERR_CANCELLED, "cancelled"), full = error(ERR_NO_SPACE, "the disk is full");
    struct hydrate *h = run_new(0);
    h->faults.is_cancelled = true;
    run_failed(h, FAULT_OTHER, &stopped);
    assert_false(h->faults.has_fatal);
    run_failed(h, FAULT_OTHER, &full);
    assert_true(h->faults.has_fatal && h->faults.fatal.code == ERR_NO_SPACE);
    run_free(h);
    h = run_new(0);
    run_failed(h, FAULT_OTHER, &stopped); /* without a call of hydrate_cancel() */
    assert_true(h->faults.has_fatal && h->faults.fatal.code == ERR_CANCELLED);
    run_free(h);
}

static void an_object_is_named_once(void **state)
{
    (void)state;
    struct hydrate *h = run_new(0);
    struct hydrate_fault f;
    struct err bare = error(ERR_DENIED, "access denied"), named = error(ERR_IO, "cannot write 'a/b'");
    object_failed(h, FAULT_OTHER, STR("a/b"), &bare, 3);
    object_failed(h, FAULT_OTHER, STR("a/b"), &named, 1);
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
        object_failed(h, FAULT_OTHER, STR("a"), &err, 1);
    assert_false(h->faults.has_fatal);
    object_failed(h, FAULT_OTHER, STR("last"), &err, 1);
    assert_true(h->faults.has_fatal);
    assert_int_equal(h->faults.fatal.code, ERR_DENIED);
    assert_non_null(strstr(h->faults.fatal.text, "gave up after 4"));
    assert_non_null(strstr(h->faults.fatal.text, "last"));
    run_free(h);
}

static void unread_faults_beyond_the_ring_are_counted(void **state)
{
    (void)state;
    struct hydrate *h = run_new(UINT64_MAX);
    struct err err = error(ERR_IO, "no");
    unsigned read = 0;
    struct hydrate_fault f;
    for (int i = 0; i < 3 * FAULTS_MAX; i++)
        object_failed(h, FAULT_OTHER, STR("a"), &err, 1);
    while (hydrate_next_fault(h, &f))
        read++;
    assert_int_equal(read, FAULTS_MAX);
    assert_int_equal(h->faults.kept_count, HYDRATE_ERRORS_KEPT);
    assert_int_equal(atomic_load(&h->progress.objects_failed), 3 * FAULTS_MAX);
    object_failed(h, FAULT_OTHER, STR("after"), &err, 1);
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
    object_failed(h, FAULT_OTHER, STR("a"), &denied, 1);
    object_failed(h, FAULT_OTHER, STR("b"), &denied, 1);
    assert_int_equal(hydrate_common_fault(h), ERR_DENIED);
    object_failed(h, FAULT_OTHER, STR("c"), &away, 1);
    assert_int_equal(hydrate_common_fault(h), 0);
    run_free(h);
}

static void a_run_receives_until_two_seconds_after_its_last_bytes(void **state)
{
    (void)state;
    struct hydrate_progress p = {0};
    const uint64_t second = NS_PER_SECOND, began = 100 * second;
    progress_init(&p);
    assert_false(progress_is_receiving(&p, began));
    for (uint64_t i = 1; i <= 5; i++) { /* a long body */
        atomic_fetch_add(&p.received, 1);
        assert_true(progress_is_receiving(&p, began + i * second));
    }
    assert_true(progress_is_receiving(&p, began + 6 * second));
    assert_false(progress_is_receiving(&p, began + 7 * second));
    progress_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_of_the_disk_ends_the_run_and_one_of_an_object_does_not),
        cmocka_unit_test(the_first_fault_of_a_run_is_its_reason),
        cmocka_unit_test(cancelled_run_has_no_fault_and_hides_none),
        cmocka_unit_test(an_object_is_named_once),
        cmocka_unit_test(a_run_gives_up_when_more_fail_than_it_may),
        cmocka_unit_test(unread_faults_beyond_the_ring_are_counted),
        cmocka_unit_test(a_reason_is_common_when_every_object_had_it),
        cmocka_unit_test(a_run_receives_until_two_seconds_after_its_last_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
