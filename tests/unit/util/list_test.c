/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/list.h"

struct number {
    int value;
    struct list_node node;
};

static int joined(const struct list *l)
{
    struct number *n;
    int digits = 0;
    list_foreach (l, n, node)
        digits = 10 * digits + n->value;
    return digits;
}

static int joined_backwards(const struct list *l)
{
    int digits = 0;
    for (const struct list_node *n = l->last; n; n = n->prev)
        digits = 10 * digits + container_of(n, const struct number, node)->value;
    return digits;
}

static void list_add_and_remove_keep_the_order(void **state)
{
    (void)state;
    struct number n[5] = {{.value = 1}, {.value = 2}, {.value = 3}, {.value = 4}, {.value = 5}};
    struct list l = {0};
    assert_true(list_is_empty(&l));
    list_add(&l, &n[2].node);
    list_add_first(&l, &n[0].node);
    list_insert(&l, &n[1].node, &n[2].node);
    list_add(&l, &n[3].node);
    list_insert(&l, &n[4].node, NULL);
    assert_int_equal(joined(&l), 12345);
    assert_int_equal(joined_backwards(&l), 54321);
    list_remove(&l, &n[2].node);
    list_remove(&l, &n[0].node);
    list_remove(&l, &n[4].node);
    assert_int_equal(joined(&l), 24);
    assert_int_equal(joined_backwards(&l), 42);
    assert_ptr_equal(list_first(&l, struct number, node), &n[1]);
}

static void list_pop_returns_the_first_and_null_at_the_end(void **state)
{
    (void)state;
    struct number n[2] = {{.value = 1}, {.value = 2}};
    struct list l = {0};
    list_add(&l, &n[0].node);
    list_add(&l, &n[1].node);
    assert_ptr_equal(list_pop(&l, struct number, node), &n[0]);
    assert_ptr_equal(list_pop(&l, struct number, node), &n[1]);
    assert_null(list_pop(&l, struct number, node));
    assert_null(l.last);
    list_add(&l, &n[1].node);
    assert_int_equal(joined(&l), 2);
}

static void list_foreach_lets_the_body_remove_the_node(void **state)
{
    (void)state;
    struct number n[4] = {{.value = 1}, {.value = 2}, {.value = 3}, {.value = 4}};
    struct list l = {0};
    struct number *x;
    for (size_t i = 0; i < countof(n); i++)
        list_add(&l, &n[i].node);
    list_foreach (&l, x, node)
        if (x->value % 2 == 0)
            list_remove(&l, &x->node);
    assert_int_equal(joined(&l), 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_add_and_remove_keep_the_order),
        cmocka_unit_test(list_pop_returns_the_first_and_null_at_the_end),
        cmocka_unit_test(list_foreach_lets_the_body_remove_the_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
