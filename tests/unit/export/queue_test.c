/* SPDX-License-Identifier: Apache-2.0 */
#include "queue.h"
#include "unit.h"

enum { ITEMS = 1000 };

static void earliest_item_comes_first_in_any_order_of_arrival(void **state)
{
    (void)state;
    struct queue q = {0};
    bool seen[ITEMS] = {0};
    uint64_t due, last = 0;
    for (size_t i = 0; i < ITEMS; i++)
        queue_push(&q, (struct queue_item){.due_ns = (i * 7919) % 613, .file = i});
    for (size_t i = 0; i < ITEMS; i++) {
        assert_true(queue_first(&q, &due));
        struct queue_item item = queue_pop(&q);
        assert_int_equal(item.due_ns, due);
        assert_int_equal(item.due_ns, (item.file * 7919) % 613);
        assert_true(item.due_ns >= last && !seen[item.file]);
        seen[item.file] = true;
        last = item.due_ns;
    }
    assert_false(queue_first(&q, &due));
    queue_done(&q);
}

static void item_pushed_between_pops_waits_for_its_own_time(void **state)
{
    (void)state;
    struct queue q = {0};
    uint64_t due;
    queue_push(&q, (struct queue_item){.due_ns = 30, .file = 3});
    queue_push(&q, (struct queue_item){.due_ns = 10, .file = 1});
    assert_int_equal(queue_pop(&q).file, 1);
    queue_push(&q, (struct queue_item){.due_ns = 20, .file = 2});
    queue_push(&q, (struct queue_item){.due_ns = 40, .file = 4});
    assert_true(queue_first(&q, &due) && due == 20);
    for (size_t want = 2; want <= 4; want++)
        assert_int_equal(queue_pop(&q).file, want);
    assert_int_equal(q.count, 0);
    queue_done(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(earliest_item_comes_first_in_any_order_of_arrival),
        cmocka_unit_test(item_pushed_between_pops_waits_for_its_own_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
