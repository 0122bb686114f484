/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/heap.h"

enum { ITEMS = 1000 };

struct item {
    struct heap_node node;
    uint64_t key;
};

static bool is_less(const struct heap_node *a, const struct heap_node *b)
{
    return container_of(a, struct item, node)->key < container_of(b, struct item, node)->key;
}

static uint64_t pop(struct heap *h)
{
    struct item *i = heap_first(h, struct item, node);
    heap_remove(h, &i->node);
    assert_int_equal(i->node.place, 0);
    return i->key;
}

static void least_comes_first_in_any_order_of_arrival(void **state)
{
    (void)state;
    static struct item items[ITEMS];
    struct heap h = {.is_before = is_less};
    uint64_t last = 0;
    for (size_t i = 0; i < ITEMS; i++) {
        items[i] = (struct item){.key = (i * 7919) % 613};
        heap_add(&h, &items[i].node);
    }
    for (size_t i = 0; i < ITEMS; i++) {
        uint64_t key = pop(&h);
        assert_true(key >= last);
        last = key;
    }
    assert_null(heap_first(&h, struct item, node));
    heap_done(&h);
}

static void any_node_can_be_removed_or_change_its_order(void **state)
{
    (void)state;
    static struct item items[ITEMS];
    struct heap h = {.is_before = is_less};
    size_t left = 0;
    for (size_t i = 0; i < ITEMS; i++) {
        items[i] = (struct item){.key = (i * 7919) % ITEMS};
        heap_add(&h, &items[i].node);
    }
    for (size_t i = 0; i < ITEMS; i++) {
        if (i % 3 == 0)
            heap_remove(&h, &items[i].node);
        if (i % 3 == 1) { /* every second of them moves up, the others down */
            items[i].key = i % 2 ? items[i].key / 2 : items[i].key + ITEMS;
            heap_update(&h, &items[i].node);
        }
        left += i % 3 != 0;
    }
    assert_int_equal(h.count, left);
    for (uint64_t last = 0, key; left > 0; left--, last = key) {
        key = pop(&h);
        assert_true(key >= last);
    }
    assert_int_equal(h.count, 0);
    heap_done(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(least_comes_first_in_any_order_of_arrival),
        cmocka_unit_test(any_node_can_be_removed_or_change_its_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
