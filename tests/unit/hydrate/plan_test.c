/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "plan.h"
#include "util/file.h"
#include <fcntl.h>

static const struct index_source source = {{1}, {"s3://b/", 7}};

static void parts_cover_an_object_once_without_a_gap(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, PLAN_PART_BYTES - 1, PLAN_PART_BYTES, PLAN_PART_BYTES + 1, UINT64_C(5) << 40};
    for (size_t i = 0; i < countof(sizes); i++) {
        uint64_t at = 0;
        for (uint32_t p = 0; p < plan_part_count(sizes[i]); p++) {
            uint64_t offset, len;
            plan_part(sizes[i], p, &offset, &len);
            assert_true(offset == at && len > 0 && len <= PLAN_PART_BYTES);
            at += len;
        }
        assert_true(at == sizes[i]);
    }
}

static void a_size_that_no_store_has_is_refused_by_its_number(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(plan_check_size(PLAN_OBJECT_MAX, &err), 0);
    assert_int_equal(plan_part_count(PLAN_OBJECT_MAX), PLAN_OBJECT_MAX / PLAN_PART_BYTES);
    assert_int_equal(plan_check_size(PLAN_OBJECT_MAX + 1, &err), -ERR_INVALID);
    assert_int_equal(plan_check_size(UINT64_MAX, &err), -ERR_INVALID);
    assert_non_null(strstr(err.text, "18446744073709551615"));
}

static void of_any_number_of_neighbours_each_is_looked_at_once(void **state)
{
    (void)state;
    static uint8_t seen[10000];
    for (uint64_t n = 1; n < sizeof seen; n = n < 600 ? n + 1 : n * 3 / 2) {
        memset(seen, 0, sizeof seen);
        for (uint64_t k = 0; k < n; k++) {
            uint64_t at = plan_spread(k, n);
            assert_true(at < n && !seen[at]);
            seen[at] = 1;
        }
    }
}

static void plan_spread_takes_each_run_of_keys_from_another_place(void **state)
{
    (void)state;
    static unsigned from[PLAN_PLACES];
    for (uint64_t k = 0; k < 10 * PLAN_PLACES * PLAN_RUN; k++)
        from[plan_spread(k, 160000) / 10000]++;
    for (unsigned i = 0; i < PLAN_PLACES; i++)
        assert_int_equal(from[i], 10 * PLAN_RUN);
}

static void add(struct index *x, const char *path, uint8_t rank)
{
    struct err err;
    bool is_new;
    struct index_entry e = {.path = str_of(path), .rank = rank};
    assert_int_equal(index_add(x, &e, &is_new, &err), 0);
    assert_int_equal(index_flush(x, true, &err), 0);
}

static const char *next(struct hydrate_plan *p, const struct index *x)
{
    static char name[16];
    struct err err;
    struct index_entry e;
    uint64_t id;
    if (plan_next(p, x, &id, &e, &err) != 1)
        return "none";
    memcpy(name, e.path.ptr, e.path.len);
    name[e.path.len] = '\0';
    return name;
}

static void priorities_go_first_also_when_they_are_listed_later(void **state)
{
    (void)state;
    struct err err;
    auto_index x = NULL;
    struct hydrate_plan p;
    assert_int_equal(index_create(dir, &source, &x, &err), 0);
    plan_init(&p, 2);
    add(x, "a", 1);
    add(x, "b", 0);
    add(x, "c", 1);
    assert_string_equal(next(&p, x), "b");
    assert_string_equal(next(&p, x), "a");
    add(x, "d", 0);
    add(x, "e", 7); /* a rank that this run has not: the last */
    assert_false(plan_is_exhausted(&p, index_count(x)));
    assert_string_equal(next(&p, x), "d");
    assert_string_equal(next(&p, x), "c");
    assert_string_equal(next(&p, x), "e");
    assert_string_equal(next(&p, x), "none");
    assert_true(plan_is_exhausted(&p, index_count(x)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_cover_an_object_once_without_a_gap),
        cmocka_unit_test(of_any_number_of_neighbours_each_is_looked_at_once),
        cmocka_unit_test(plan_spread_takes_each_run_of_keys_from_another_place),
        cmocka_unit_test(a_size_that_no_store_has_is_refused_by_its_number),
        cmocka_unit_test_setup_teardown(priorities_go_first_also_when_they_are_listed_later, folder_setup,
                                        folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
