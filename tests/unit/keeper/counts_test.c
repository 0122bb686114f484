/* SPDX-License-Identifier: Apache-2.0 */
#include "counts.h"
#include "unit.h"
#include <errno.h>
#include <linux/fuse.h>

static uint64_t all_of(const struct counts_cell *c)
{
    uint64_t n = 0;
    for (size_t i = 0; i <= COUNTS_BOUNDS; i++)
        n += c->within[i];
    return n;
}

static void requests_are_counted_by_kind_by_how_they_ended_and_by_their_time(void **state)
{
    (void)state;
    struct counts c = {0};
    counts_add(&c, FUSE_MKDIR, 0, 50000);
    counts_add(&c, FUSE_SYMLINK, 0, 100000); /* at most its bound */
    counts_add(&c, FUSE_LINK, 0, 100001);
    counts_add(&c, FUSE_UNLINK, -EACCES, 5000000000);
    const struct counts_cell *made = &c.ops[COUNTS_MAKE][COUNTS_OK];
    assert_int_equal(made->within[0], 2);
    assert_int_equal(made->within[1], 1);
    assert_int_equal(made->ns, 250001);
    assert_int_equal(c.ops[COUNTS_REMOVE][COUNTS_ERROR].within[COUNTS_BOUNDS], 1);
    assert_int_equal(all_of(&c.ops[COUNTS_REMOVE][COUNTS_OK]), 0);
}

static void a_missing_name_is_counted_as_ok(void **state)
{
    (void)state;
    struct counts c = {0};
    counts_add(&c, FUSE_LOOKUP, -ENOENT, 1);
    counts_add(&c, FUSE_GETXATTR, -ENODATA, 1);
    counts_add(&c, FUSE_FLUSH, -ENOSYS, 1);
    counts_add(&c, FUSE_LOOKUP, -EIO, 1);
    assert_int_equal(all_of(&c.ops[COUNTS_LOOKUP][COUNTS_OK]), 1);
    assert_int_equal(all_of(&c.ops[COUNTS_XATTR][COUNTS_OK]), 1);
    assert_int_equal(all_of(&c.ops[COUNTS_OTHER][COUNTS_OK]), 1);
    assert_int_equal(all_of(&c.ops[COUNTS_LOOKUP][COUNTS_ERROR]), 1);
}

static void an_unknown_opcode_is_counted_as_other(void **state)
{
    (void)state;
    struct counts c = {0};
    counts_add(&c, 0, 0, 1);
    counts_add(&c, 4711, 0, 1);
    counts_add(&c, UINT32_MAX, 0, 1);
    assert_int_equal(all_of(&c.ops[COUNTS_OTHER][COUNTS_OK]), 3);
}

static void every_kind_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int a = 0; a < COUNTS_OPS; a++) {
        assert_non_null(counts_op_name((enum counts_op)a));
        for (int b = 0; b < a; b++)
            assert_string_not_equal(counts_op_name((enum counts_op)a), counts_op_name((enum counts_op)b));
    }
}

static void sums_give_back_what_was_subtracted(void **state)
{
    (void)state;
    struct counts a = {0}, b = {0}, sum = {0};
    counts_add(&a, FUSE_READ, 0, 3);
    counts_add_open(&a, true);
    counts_add(&b, FUSE_READ, 0, 4);
    counts_add_open(&b, false);
    counts_sum(&sum, &a, -1); /* negative in between, as in a mirror */
    counts_sum(&sum, &b, 1);
    counts_sum(&sum, &a, 1);
    assert_memory_equal(&sum, &b, sizeof sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_counted_by_kind_by_how_they_ended_and_by_their_time),
        cmocka_unit_test(a_missing_name_is_counted_as_ok),
        cmocka_unit_test(an_unknown_opcode_is_counted_as_other),
        cmocka_unit_test(every_kind_has_a_name_of_its_own),
        cmocka_unit_test(sums_give_back_what_was_subtracted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
