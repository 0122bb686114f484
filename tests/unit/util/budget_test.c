/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/budget.h"
#include "util/macro.h"
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

struct waiter {
    struct budget_waiter w;
    unsigned woken;
};

static void count_wake(struct budget_waiter *w)
{
    container_of(w, struct waiter, w)->woken++;
}

static struct budget *budget_of(uint64_t bytes)
{
    struct budget *b;
    struct err err;
    assert_int_equal(budget_new(bytes, &b, &err), 0);
    return b;
}

static void budget_too_large_is_an_error(void **state)
{
    static const uint64_t sizes[] = {UINT64_C(1) << 47, UINT64_C(1) << 62, UINT64_MAX};
    (void)state;
    for (size_t i = 0; i < countof(sizes); i++) {
        struct budget *b = NULL;
        struct err err;
        assert_int_equal(budget_new(sizes[i], &b, &err), -ERR_NO_SPACE);
        assert_int_equal(err.id, 1516);
        assert_null(b);
    }
}

static void budget_slices_are_aligned_distinct_and_limited(void **state)
{
    (void)state;
    struct budget *b = budget_of(3 * SLICE_BYTES + 5);
    unsigned char *s[3];
    for (unsigned i = 0; i < 3; i++) {
        s[i] = budget_take(b, SLICE_BYTES, NULL);
        assert_non_null(s[i]);
        assert_int_equal((uintptr_t)s[i] % 4096, 0);
        memset(s[i], (int)i, SLICE_BYTES);
    }
    for (unsigned i = 0; i < 3; i++)
        assert_true(s[i][0] == i && s[i][SLICE_BYTES - 1] == i);
    assert_null(budget_take(b, SLICE_BYTES, NULL));
    assert_int_equal(budget_bytes_out(b), 3 * SLICE_BYTES);
    for (unsigned i = 0; i < 3; i++)
        budget_return(b, s[i]);
    assert_int_equal(budget_bytes_out(b), 0);
    budget_free(b);
}

static void returned_slice_goes_to_the_first_waiter(void **state)
{
    (void)state;
    struct budget *b = budget_of(1);
    struct waiter one = {.w.wake = count_wake}, two = one;
    void *s = budget_take(b, SLICE_BYTES, NULL);
    assert_null(budget_take(b, SLICE_BYTES, &one.w));
    assert_null(budget_take(b, SLICE_BYTES, &two.w));
    assert_null(budget_take(b, SLICE_BYTES, &one.w)); /* asking again does not queue twice */
    budget_return(b, s);
    assert_true(one.woken == 1 && two.woken == 0);
    assert_null(budget_take(b, SLICE_BYTES, NULL));
    assert_null(budget_take(b, SLICE_BYTES, &two.w));
    s = budget_take(b, SLICE_BYTES, &one.w);
    assert_non_null(s);
    budget_return(b, s);
    assert_true(one.woken == 1 && two.woken == 1);
    s = budget_take(b, SLICE_BYTES, &two.w);
    assert_non_null(s);
    budget_return(b, s);
    budget_free(b);
}

static void cancelled_waiter_passes_its_slice_on(void **state)
{
    (void)state;
    struct budget *b = budget_of(1);
    struct waiter one = {.w.wake = count_wake}, two = one, three = one;
    void *s = budget_take(b, SLICE_BYTES, NULL);
    assert_null(budget_take(b, SLICE_BYTES, &one.w));
    assert_null(budget_take(b, SLICE_BYTES, &two.w));
    assert_null(budget_take(b, SLICE_BYTES, &three.w));
    budget_cancel(b, &two.w); /* in the middle of the queue */
    budget_return(b, s);
    assert_int_equal(one.woken, 1);
    budget_cancel(b, &one.w);
    assert_true(two.woken == 0 && three.woken == 1);
    budget_cancel(b, &three.w);
    budget_cancel(b, &three.w);
    s = budget_take(b, SLICE_BYTES, NULL);
    assert_non_null(s);
    budget_return(b, s);
    budget_free(b);
}

static void small_requests_of_one_size_share_a_slice(void **state)
{
    (void)state;
    struct budget *b = budget_of(2 * SLICE_BYTES);
    unsigned char *cells[64], *other;
    struct waiter one = {.w.wake = count_wake}, two = one;
    for (unsigned i = 0; i < 8; i++) {
        cells[i] = budget_take(b, 100 << 10, NULL);
        assert_int_equal((uintptr_t)cells[i] % 4096, 0);
        memset(cells[i], (int)i, 128 << 10);
    }
    assert_int_equal(budget_bytes_out(b), SLICE_BYTES);
    other = budget_take(b, 200 << 10, NULL);
    assert_int_equal(budget_bytes_out(b), 2 * SLICE_BYTES);
    assert_null(budget_take(b, 100 << 10, &one.w));
    assert_null(budget_take(b, 1, &two.w));
    /* One slice serves several waiters of smaller sizes. */
    budget_return(b, other);
    assert_true(one.woken == 1 && two.woken == 0);
    for (unsigned i = 0; i < 8; i++) {
        assert_true(cells[i][0] == i && cells[i][(128 << 10) - 1] == i);
        budget_return(b, cells[i]);
    }
    assert_int_equal(two.woken, 1);
    budget_return(b, budget_take(b, 100 << 10, &one.w));
    budget_return(b, budget_take(b, 1, &two.w));
    assert_int_equal(budget_bytes_out(b), 0);
    for (unsigned i = 0; i < 64; i++)
        cells[i] = budget_take(b, i % 2 ? 1 : 16 << 10, NULL);
    assert_int_equal(budget_bytes_out(b), SLICE_BYTES);
    for (unsigned i = 0; i < 64; i++)
        budget_return(b, cells[(i * 37) % 64]);
    assert_int_equal(budget_bytes_out(b), 0);
    budget_free(b);
}

enum { THREADS = 4, ROUNDS = 20000 };

struct crowd {
    struct budget *b;
    _Atomic int inside;
};

struct member {
    struct budget_waiter w;
    _Atomic bool awake;
    struct crowd *crowd;
    pthread_t thread;
};

static void set_awake(struct budget_waiter *w)
{
    atomic_store(&container_of(w, struct member, w)->awake, true);
}

static void *take_and_give(void *arg)
{
    struct member *m = arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        void *s;
        while (atomic_store(&m->awake, false), (s = budget_take(m->crowd->b, SLICE_BYTES, &m->w)) == NULL) {
            if (i % 7 == 0) {
                budget_cancel(m->crowd->b, &m->w);
                continue;
            }
            while (!atomic_load(&m->awake))
                sched_yield();
        }
        assert(atomic_fetch_add(&m->crowd->inside, 1) < 2);
        atomic_fetch_sub(&m->crowd->inside, 1);
        budget_return(m->crowd->b, s);
    }
    return NULL;
}

static void many_threads_share_two_slices_without_a_lost_wake(void **state)
{
    (void)state;
    struct crowd crowd = {.b = budget_of(2 * SLICE_BYTES)};
    struct member members[THREADS] = {0};
    for (unsigned i = 0; i < THREADS; i++) {
        members[i].w.wake = set_awake;
        members[i].crowd = &crowd;
        assert_int_equal(pthread_create(&members[i].thread, NULL, take_and_give, &members[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(members[i].thread, NULL);
    assert_int_equal(budget_bytes_out(crowd.b), 0);
    budget_free(crowd.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budget_too_large_is_an_error),
        cmocka_unit_test(budget_slices_are_aligned_distinct_and_limited),
        cmocka_unit_test(returned_slice_goes_to_the_first_waiter),
        cmocka_unit_test(small_requests_of_one_size_share_a_slice),
        cmocka_unit_test(cancelled_waiter_passes_its_slice_on),
        cmocka_unit_test(many_threads_share_two_slices_without_a_lost_wake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
