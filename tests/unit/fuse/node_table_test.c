/* SPDX-License-Identifier: Apache-2.0 */
#include "node_table.h"
#include "unit.h"
#include <linux/fuse.h>
#include <sys/mman.h>

static struct table_handle handle_of(uint32_t n)
{
    struct table_handle h = {.type = 1, .len = 8};
    memcpy(h.bytes, &n, sizeof(n));
    return h;
}

static struct node_table *open_again(int fd)
{
    struct err err;
    struct node_table *t = NULL;
    assert_int_equal(nodes_open(dup(fd), &t, &err), 0);
    return t;
}

static int make_fd(void)
{
    struct err err;
    struct wire_msg ask = wire_msg(WIRE_MOUNT, "v");
    int fd = -1;
    assert_int_equal(table_create(&ask, &fd, &err), 0);
    return fd;
}

static uint64_t count(struct node_table *t, struct table_intent *i, uint32_t n)
{
    struct count_reuse none = {0};
    struct table_handle h = handle_of(n);
    uint64_t id = 0;
    assert_int_equal(nodes_count(t, i, &none, &h, &id, NULL), 0);
    return id;
}

static void a_file_keeps_its_id_while_the_kernel_knows_it_and_never_regains_it(void **state)
{
    (void)state;
    auto_fd fd = make_fd();
    auto_node_table t = open_again(fd);
    struct table_node n;
    struct table_intent *i = intent_begin(t, 0, 2, 1);
    uint64_t first = count(t, i, 7);
    assert_int_equal(count(t, i, 7), first);
    assert_int_equal(nodes_get(t, first, &n), 0);
    assert_int_equal(n.lookups, 2);
    nodes_forget(t, i, first, 1, &n);
    assert_int_equal(n.lookups, 1);
    nodes_forget(t, i, first, 1, &n);
    assert_int_equal(n.lookups, 0);
    assert_int_equal(nodes_get(t, first, &n), -ESTALE);
    uint64_t second = count(t, i, 7);
    assert_int_equal((uint32_t)second, (uint32_t)first); /* the slot is used again, the id is not */
    assert_int_not_equal(second, first);
    intent_end(i);
}

static void all_nodes_exist_after_the_process_died(void **state)
{
    (void)state;
    enum { FILES = 3 * NODES_GROWTH };
    auto_fd fd = make_fd();
    static uint64_t ids[FILES];
    struct table_node n;
    {
        auto_node_table t = open_again(fd);
        struct table_intent *i = intent_begin(t, 0, 2, 1);
        for (uint32_t k = 0; k < FILES; k++) {
            i->n_counted = 0;
            ids[k] = count(t, i, k);
        }
        assert_int_equal(nodes_count_open(t, i, ids[5], true, &n), 0);
    }
    auto_node_table t = open_again(fd);
    for (uint32_t k = 0; k < FILES; k++) {
        struct table_handle h = handle_of(k);
        assert_int_equal(nodes_find(t, &h), ids[k]);
    }
    assert_int_equal(nodes_get(t, ids[5], &n), 0);
    assert_int_equal(n.opens, 1);
    assert_int_equal(n.writers, 1);
    assert_int_equal(t->head->opens, 1);
    assert_int_equal(t->head->nodes, FILES + 1);
}

static void an_interrupted_step_is_applied_exactly_once(void **state)
{
    (void)state;
    auto_fd fd = make_fd();
    uint64_t id;
    struct table_node n;
    {
        auto_node_table t = open_again(fd);
        struct table_intent *i = intent_begin(t, 0, 2, 1);
        id = count(t, i, 7);
        struct table_step s = i->step; /* what count() did: as if death had come before its end */
        for (int k = 0; k < 2; k++) {
            i->step = s;
            i->step.valid = 1;
            nodes_close(take(&t));
            t = open_again(fd);
            i = intent_find(t, 2);
            assert_non_null(i);
            assert_int_equal(i->step.valid, 0);
            assert_int_equal(i->n_counted, 1);
        }
    }
    auto_node_table t = open_again(fd);
    assert_int_equal(nodes_get(t, id, &n), 0);
    assert_int_equal(n.lookups, 1);
}

static void a_resent_request_counts_each_lookup_only_once(void **state)
{
    (void)state;
    auto_fd fd = make_fd();
    auto_node_table t = open_again(fd);
    struct table_intent *i = intent_begin(t, 0, 2, 1);
    uint64_t kept = count(t, i, 1);
    uint64_t gone = count(t, i, 2);
    struct count_reuse claims = {.n = i->n_counted};
    struct table_handle h = handle_of(1);
    uint64_t id;
    struct table_node n;
    assert_int_equal(nodes_count(t, i, &claims, &h, &id, &n), 0);
    assert_int_equal(id, kept);
    assert_int_equal(n.lookups, 1);
    assert_int_equal(nodes_unused_count(t, i, &claims), gone);
    assert_int_equal(nodes_unused_count(t, i, &claims), 0);
}

static void opens_and_releases_are_counted_once_a_request(void **state)
{
    (void)state;
    auto_fd fd = make_fd();
    auto_node_table t = open_again(fd);
    struct table_node n;
    struct table_intent *open = intent_begin(t, 0, 2, 1);
    uint64_t id = count(t, open, 1);
    for (int k = 0; k < 2; k++)
        assert_int_equal(nodes_count_open(t, open, id, false, &n), 0);
    assert_int_equal(n.opens, 1);
    struct table_intent *release = intent_begin(t, 1, 4, 2);
    for (int k = 0; k < 2; k++)
        assert_int_equal(nodes_count_release(t, release, id, false, &n), 0);
    assert_int_equal(n.opens, 0);
}

static void a_backing_id_is_noted_before_it_leaves_its_node(void **state)
{
    (void)state;
    auto_fd fd = make_fd();
    auto_node_table t = open_again(fd);
    struct table_node n;
    struct table_intent *i = intent_begin(t, 0, 2, 1);
    uint64_t id = count(t, i, 1);
    nodes_set_backing(t, id, 9);
    assert_true(nodes_has_backing(t, 9));
    assert_int_equal(nodes_unused_backing(t, (uint32_t)id), id);
    assert_int_equal(nodes_count_open(t, i, id, false, &n), 0);
    assert_int_equal(nodes_unused_backing(t, (uint32_t)id), 0);
    assert_int_equal(nodes_take_backing(t, i, id, true), 0); /* it is open */
    nodes_forget(t, i, id, 1, &n);
    assert_int_equal(n.backing, 9);
    assert_int_equal(i->closing, 9);
    assert_false(nodes_has_backing(t, 9));
}

static void intents_wait_for_their_requests_until_they_are_swept(void **state)
{
    (void)state;
    auto_fd fd = make_fd();
    auto_node_table t = open_again(fd);
    for (uint64_t k = 0; k < INTENTS_MAX; k++)
        assert_non_null(intent_begin(t, 0, 2 + 2 * k, 1));
    assert_null(intent_begin(t, 0, 1000, 1));
    assert_non_null(intent_find(t, 2));
    intent_end(intent_find(t, 2));
    assert_null(intent_find(t, 2));
    intent_sweep(t);
    assert_null(intent_find(t, 4));
    assert_non_null(intent_begin(t, 5, 1000, 1));
}

static void a_damaged_memfd_is_an_error(void **state)
{
    (void)state;
    struct err err;
    struct node_table *t = NULL;
    auto_fd empty = memfd_create("empty", MFD_CLOEXEC);
    assert_int_equal(nodes_open(dup(empty), &t, &err), -ERR_CORRUPT);
    auto_fd fd = make_fd();
    uint32_t huge = UINT32_MAX;
    assert_int_equal(pwrite(fd, &huge, 4, offsetof(struct table_head, node_high)), 4);
    assert_int_equal(nodes_open(dup(fd), &t, &err), -ERR_CORRUPT);
    assert_int_equal(pwrite(fd, "X", 1, 0), 1);
    assert_int_equal(nodes_open(dup(fd), &t, &err), -ERR_CORRUPT);
    assert_null(t);
}

static uint64_t statfs_count(struct counts c)
{
    return c.ops[COUNTS_STATFS][COUNTS_OK].within[0];
}

static void counts_outlive_the_process_and_are_read_from_outside(void **state)
{
    (void)state;
    struct err err;
    struct wire_msg ask = wire_msg(WIRE_MOUNT, "v");
    int fd;
    assert_int_equal(table_create(&ask, &fd, &err), 0);
    struct node_table *t;
    assert_int_equal(nodes_open(dup(fd), &t, &err), 0);
    counts_add(&t->head->counts, FUSE_STATFS, 0, 7);
    nodes_close(t);
    assert_int_equal(nodes_open(dup(fd), &t, &err), 0);
    counts_add(&t->head->counts, FUSE_STATFS, 0, 7);
    nodes_close(t);
    struct counts c = table_counts(fd);
    assert_int_equal(statfs_count(c), 2);
    assert_int_equal(c.ops[COUNTS_STATFS][COUNTS_OK].ns, 14);
    assert_int_equal(ftruncate(fd, 4096), 0);
    c = table_counts(fd);
    assert_int_equal(statfs_count(c), 0);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_keeps_its_id_while_the_kernel_knows_it_and_never_regains_it),
        cmocka_unit_test(all_nodes_exist_after_the_process_died),
        cmocka_unit_test(an_interrupted_step_is_applied_exactly_once),
        cmocka_unit_test(a_resent_request_counts_each_lookup_only_once),
        cmocka_unit_test(opens_and_releases_are_counted_once_a_request),
        cmocka_unit_test(a_backing_id_is_noted_before_it_leaves_its_node),
        cmocka_unit_test(intents_wait_for_their_requests_until_they_are_swept),
        cmocka_unit_test(a_damaged_memfd_is_an_error),
        cmocka_unit_test(counts_outlive_the_process_and_are_read_from_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
