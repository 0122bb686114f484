/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/map.h"
#include <stdbool.h>

struct number {
    struct map_node node;
    unsigned value;
};

static struct number *find(const struct map *m, unsigned value, uint64_t hash)
{
    struct number *n;
    map_foreach_hash (m, hash, n, node)
        if (n->value == value)
            return n;
    return NULL;
}

static void map_finds_what_was_added_while_it_grows(void **state)
{
    (void)state;
    static struct number n[1000];
    struct map m = {0};
    assert_null(find(&m, 7, 7));
    for (unsigned i = 0; i < countof(n); i++) {
        n[i].value = i;
        map_add(&m, &n[i].node, i * 7919);
    }
    assert_int_equal(m.count, countof(n));
    for (unsigned i = 0; i < countof(n); i++)
        assert_ptr_equal(find(&m, i, i * 7919), &n[i]);
    assert_null(find(&m, 1000, 1000 * 7919));
    map_done(&m);
}

static void map_nodes_of_equal_hash_are_all_found_and_removed_one_by_one(void **state)
{
    (void)state;
    struct number n[3] = {{.value = 1}, {.value = 2}, {.value = 3}};
    struct map m = {0};
    for (size_t i = 0; i < countof(n); i++)
        map_add(&m, &n[i].node, 42);
    map_remove(&m, &n[1].node);
    assert_ptr_equal(find(&m, 1, 42), &n[0]);
    assert_null(find(&m, 2, 42));
    assert_ptr_equal(find(&m, 3, 42), &n[2]);
    map_done(&m);
}

static void map_foreach_meets_each_node_once_and_may_remove_it(void **state)
{
    (void)state;
    static struct number n[100];
    static bool seen[countof(n)];
    struct map m = {0};
    struct number *x;
    map_foreach (&m, x, node)
        fail_msg("the map is empty");
    for (unsigned i = 0; i < countof(n); i++) {
        n[i].value = i;
        map_add(&m, &n[i].node, i / 3);
    }
    map_foreach (&m, x, node) {
        assert_false(seen[x->value]);
        seen[x->value] = true;
        map_remove(&m, &x->node);
    }
    for (size_t i = 0; i < countof(n); i++)
        assert_true(seen[i]);
    assert_int_equal(m.count, 0);
    assert_null(map_next(&m, NULL));
    map_done(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(map_finds_what_was_added_while_it_grows),
        cmocka_unit_test(map_nodes_of_equal_hash_are_all_found_and_removed_one_by_one),
        cmocka_unit_test(map_foreach_meets_each_node_once_and_may_remove_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
