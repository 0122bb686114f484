/* SPDX-License-Identifier: Apache-2.0 */
#include "key.h"
#include "unit.h"

static const char *made(struct str prefix, struct str path, unsigned version, struct sbuf *b)
{
    struct err err;
    if (key_make(prefix, path, 1, version, b, &err) < 0)
        fail_msg("%s", err.text);
    return b->ptr;
}

static void prefix_is_a_directory_with_or_without_its_slash(void **state)
{
    (void)state;
    auto_sbuf b;
    sbuf_init(&b, 4096);
    assert_string_equal(made(STR("p/"), STR("a b"), 1, &b), "p/a b");
    assert_string_equal(made(STR("p"), STR("a"), 1, &b), "p/a");
    assert_string_equal(made(STR_NULL, STR("a/b"), 1, &b), "a/b");
    assert_string_equal(made(STR_NULL, STR("a"), 2, &b), "a.v2");
}

static void key_that_no_bucket_accepts_is_refused_by_name(void **state)
{
    (void)state;
    struct err err;
    auto_sbuf b;
    char name[1100];
    memset(name, 'x', sizeof name);
    sbuf_init(&b, 8192);
    assert_int_equal(key_make(STR("p/"), STR("a\xff"), 1, 1, &b, &err), -ERR_INVALID);
    assert_int_equal(err.id, 4007);
    assert_non_null(strstr(err.text, "a\\xff"));
    assert_int_equal(key_make(STR("p/"), (struct str){name, 1022}, 1, 1, &b, &err), 0);
    assert_int_equal(key_make(STR("p/"), (struct str){name, 1023}, 1, 1, &b, &err), -ERR_INVALID);
    assert_int_equal(key_make(STR_NULL, STR("a"), UINT64_C(5) << 40, 1, &b, &err), 0);
    assert_int_equal(key_make(STR_NULL, STR("a"), (UINT64_C(5) << 40) + 1, 1, &b, &err), -ERR_INVALID);
}

static void parts_stay_within_the_limit_of_the_store(void **state)
{
    (void)state;
    enum { PARTS_MAX = 10000 };
    const uint64_t sizes[] = {1, KEY_PART_BYTES, UINT64_C(83886080000), UINT64_C(83886080001), UINT64_C(5) << 40};
    assert_int_equal(key_part_bytes(1, PARTS_MAX), KEY_PART_BYTES);
    assert_int_equal(key_part_bytes(sizes[2], PARTS_MAX), KEY_PART_BYTES);
    for (size_t i = 0; i < countof(sizes); i++) {
        uint64_t part = key_part_bytes(sizes[i], PARTS_MAX);
        assert_true((sizes[i] + part - 1) / part <= PARTS_MAX);
        assert_int_equal(part % (1 << 20), 0);
    }
    assert_int_equal(key_part_bytes(2 * (uint64_t)KEY_PART_BYTES, 1), 2 * KEY_PART_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefix_is_a_directory_with_or_without_its_slash),
        cmocka_unit_test(key_that_no_bucket_accepts_is_refused_by_name),
        cmocka_unit_test(parts_stay_within_the_limit_of_the_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
