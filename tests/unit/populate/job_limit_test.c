/* SPDX-License-Identifier: Apache-2.0 */
#include "job_limit.h"
#include "unit.h"

static bool take_of(struct job_limit *l, const char *ns, const char *volume, const char *node)
{
    return job_limit_take(l, &(struct job_request){.volume = volume, .node = node, .ns = ns}, false);
}

/* Each volume in a namespace of its own. */
static bool take_alone(struct job_limit *l, const char *volume, const char *node)
{
    return take_of(l, volume, volume, node);
}

static bool runs(struct job_limit *l, const char *volume, const char *node)
{
    return job_limit_take(l, &(struct job_request){.volume = volume, .node = node, .ns = volume}, true);
}

static void without_limit_every_export_runs(void **state)
{
    (void)state;
    struct job_limit l = {0};
    for (int i = 0; i < 100; i++)
        assert_true(take_of(&l, "ns", "v", "n"));
    assert_null(job_limit_next(&l));
    job_limit_leave(&l, "v");
    job_limit_done(&l);
}

static void first_volume_that_came_is_exported_first(void **state)
{
    (void)state;
    struct job_limit l = {.max = 1};
    assert_true(take_alone(&l, "a", "n1"));
    assert_false(take_alone(&l, "b", "n2"));
    assert_false(take_alone(&l, "c", "n3"));
    assert_true(take_alone(&l, "a", "n1")); /* it runs already */
    assert_null(job_limit_next(&l));
    job_limit_leave(&l, "a");
    assert_string_equal(job_limit_next(&l), "b");
    assert_false(take_alone(&l, "c", "n3")); /* though it asks sooner */
    assert_true(take_alone(&l, "b", "n2"));
    job_limit_leave(&l, "b");
    assert_true(take_alone(&l, "c", "n3"));
    job_limit_done(&l);
}

static void busy_node_does_not_delay_exports_of_other_nodes(void **state)
{
    (void)state;
    struct job_limit l = {.max = 3, .max_per_node = 1};
    assert_true(take_alone(&l, "a", "n1"));
    assert_false(take_alone(&l, "b", "n1"));
    assert_true(take_alone(&l, "c", "n2"));
    assert_true(take_alone(&l, "d", "n3"));
    assert_false(take_alone(&l, "e", "n4")); /* the fourth of three */
    job_limit_leave(&l, "c");
    assert_string_equal(job_limit_next(&l), "e");
    assert_true(take_alone(&l, "e", "n4"));
    job_limit_leave(&l, "a");
    assert_string_equal(job_limit_next(&l), "b");
    assert_true(take_alone(&l, "b", "n1"));
    job_limit_done(&l);
}

static void running_export_counts_beyond_the_limit(void **state)
{
    (void)state;
    struct job_limit l = {.max = 1};
    assert_true(runs(&l, "a", "n1"));
    assert_true(runs(&l, "b", "n1"));
    assert_false(take_alone(&l, "c", "n2"));
    job_limit_leave(&l, "a");
    assert_false(take_alone(&l, "c", "n2"));
    job_limit_leave(&l, "b");
    job_limit_leave(&l, "unknown");
    assert_false(runs(&l, "d", "n2") && take_alone(&l, "e", "n2"));
    job_limit_forget_waiting(&l);
    job_limit_leave(&l, "d");
    assert_null(job_limit_next(&l));
    assert_true(take_alone(&l, "c", "n2"));
    job_limit_done(&l);
}

static void namespace_gets_half_of_the_exports_at_most(void **state)
{
    (void)state;
    char name[16];
    unsigned running = 0;
    struct job_limit l = {.max = 64, .max_per_node = 4};
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "v%d", i);
        running += take_of(&l, "tarpit", name, name);
    }
    assert_int_equal(running, 32);
    assert_null(job_limit_next(&l)); /* the others of that namespace wait */
    assert_true(take_of(&l, "honest", "a", "n1"));
    job_limit_leave(&l, "v0");
    assert_string_equal(job_limit_next(&l), "v32");
    job_limit_done(&l);
}

static void single_export_is_allowed_for_every_namespace(void **state)
{
    (void)state;
    struct job_limit l = {.max = 1};
    assert_true(take_of(&l, "team", "a", "n1"));
    assert_false(take_of(&l, "team", "b", "n1"));
    job_limit_leave(&l, "a");
    assert_true(take_of(&l, "team", "b", "n1"));
    job_limit_done(&l);
}

static void namespace_with_fewest_exports_is_next(void **state)
{
    (void)state;
    struct job_limit l = {.max = 4};
    assert_true(take_of(&l, "large", "a1", "n1"));
    assert_true(take_of(&l, "large", "a2", "n2"));
    assert_true(take_of(&l, "other", "b1", "n3"));
    assert_true(take_of(&l, "third", "c1", "n4"));
    assert_false(take_of(&l, "other", "b2", "n5"));
    assert_false(take_of(&l, "fourth", "d1", "n6"));
    job_limit_leave(&l, "a1");
    assert_string_equal(job_limit_next(&l), "d1"); /* though b2 came before it */
    assert_false(take_of(&l, "other", "b2", "n5"));
    assert_true(take_of(&l, "fourth", "d1", "n6"));
    job_limit_leave(&l, "a2");
    assert_string_equal(job_limit_next(&l), "b2");
    job_limit_done(&l);
}

/* A node that exports one volume at a time. */
static void namespaces_take_turns_however_many_volumes_wait(void **state)
{
    (void)state;
    char name[16];
    struct job_limit l = {.max = 64, .max_per_node = 1};
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "v%d", i);
        assert_int_equal(take_of(&l, "large", name, "n1"), i == 0);
    }
    assert_false(take_of(&l, "other", "a", "n1"));
    assert_false(take_of(&l, "third", "b", "n1"));
    const char *const order[] = {"v0", "a", "b", "v1", "v2"};
    for (size_t i = 0; i + 1 < countof(order); i++) {
        job_limit_leave(&l, order[i]);
        assert_string_equal(job_limit_next(&l), order[i + 1]);
        assert_false(take_of(&l, "large", "v19", "n1"));
        assert_true(take_of(&l, i == 0 ? "other" : i == 1 ? "third" : "large", order[i + 1], "n1"));
    }
    job_limit_done(&l);
}

static void namespace_leaves_half_of_a_node_to_others(void **state)
{
    (void)state;
    struct job_limit l = {.max = 64, .max_per_node = 4};
    assert_true(take_of(&l, "tarpit", "v0", "n1"));
    assert_true(take_of(&l, "tarpit", "v1", "n1"));
    assert_false(take_of(&l, "tarpit", "v2", "n1"));
    assert_true(take_of(&l, "tarpit", "v3", "n2"));
    assert_true(take_of(&l, "honest", "a", "n1"));
    assert_true(take_of(&l, "honest", "b", "n1"));
    assert_false(take_of(&l, "third", "c", "n1"));
    job_limit_done(&l);
}

/* Of a cluster of many nodes: only the Jobs of one node count. */
static void limit_of_a_node_has_no_limit_in_all(void **state)
{
    (void)state;
    char name[16], node[16];
    struct job_limit l = {.max_per_node = 2};
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "v%d", i);
        snprintf(node, sizeof node, "n%d", i);
        assert_true(take_of(&l, "large", name, node));
    }
    assert_false(take_of(&l, "large", "one more", "n7"));
    assert_true(take_of(&l, "other", "a", "n7"));
    job_limit_done(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_limit_every_export_runs),
        cmocka_unit_test(first_volume_that_came_is_exported_first),
        cmocka_unit_test(busy_node_does_not_delay_exports_of_other_nodes),
        cmocka_unit_test(running_export_counts_beyond_the_limit),
        cmocka_unit_test(namespace_gets_half_of_the_exports_at_most),
        cmocka_unit_test(single_export_is_allowed_for_every_namespace),
        cmocka_unit_test(namespace_with_fewest_exports_is_next),
        cmocka_unit_test(namespaces_take_turns_however_many_volumes_wait),
        cmocka_unit_test(namespace_leaves_half_of_a_node_to_others),
        cmocka_unit_test(limit_of_a_node_has_no_limit_in_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
