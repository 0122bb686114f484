/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/mem.h"
#include <string.h>

static void an_arena_gives_zeroed_aligned_memory_up_to_its_ceiling(void **state)
{
    (void)state;
    auto_arena a = arena_new(256, 1024);
    for (unsigned i = 0; i < 16; i++) {
        char *p = arena_alloc(a, 50);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (unsigned k = 0; k < 50; k++)
            assert_int_equal(p[k], 0);
        memset(p, 0xAA, 50);
    }
    assert_null(arena_alloc(a, 1));
    assert_null(arena_alloc(a, SIZE_MAX));
    auto_arena other = arena_new(256, 1024);
    char *large = arena_alloc(other, 1000); /* larger than a block */
    assert_non_null(large);
    assert_int_equal(large[999], 0);
}

static void an_arena_copies_with_a_nul_behind(void **state)
{
    (void)state;
    auto_arena a = arena_new(64, 100);
    struct str copy;
    assert_true(arena_dup(a, STR("a\0b"), &copy));
    assert_int_equal(copy.len, 3);
    assert_memory_equal(copy.ptr, "a\0b", 4);
    assert_true(arena_dup(a, STR_NULL, &copy));
    assert_int_equal(copy.len, 0);
    assert_false(arena_dup(a, (struct str){"x", 1000}, &copy));
}

static void a_copy_for_the_disk_is_a_copy_at_any_alignment(void **state)
{
    (void)state;
    char from[400], to[400];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (char)(i * 7 + 1);
    for (size_t at = 0; at < 70; at++)
        for (size_t len = 0; len < 200; len += 1 + len / 9) {
            memset(to, 0, sizeof to);
            mem_copy_out(to + at, from + at % 17, len);
            assert_memory_equal(to + at, from + at % 17, len);
            for (size_t i = 0; i < sizeof to; i++)
                if (i < at || i >= at + len)
                    assert_int_equal(to[i], 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_for_the_disk_is_a_copy_at_any_alignment),
        cmocka_unit_test(an_arena_gives_zeroed_aligned_memory_up_to_its_ceiling),
        cmocka_unit_test(an_arena_copies_with_a_nul_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
