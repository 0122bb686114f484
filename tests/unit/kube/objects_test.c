/* SPDX-License-Identifier: Apache-2.0 */
#include "objects.h"
#include "unit.h"
#include <stdio.h>

static void by_color(const json *object, struct sbuf *ret_value)
{
    sbuf_add(ret_value, json_member_str(object, "color"));
}

static void by_place(const json *object, struct sbuf *ret_value)
{
    sbuf_addf(ret_value, "%.*s/%.*s", STR_FMT(json_member_str(object, "color")),
              STR_FMT(json_member_str(object, "name")));
}

static const struct kube_index indexes[] = {{by_color}, {by_place}};
static struct objects all;

static struct object *put(unsigned n, const char *color)
{
    char key[16];
    struct object *x;
    auto_json j = json_new_object();
    snprintf(key, sizeof key, "k%u", n);
    json_set_str(j, "name", str_of(key));
    json_set_str(j, "metadata.resourceVersion", STR("1"));
    if (color)
        json_set_str(j, "color", str_of(color));
    objects_put(&all, str_of(key), j, &x);
    return x;
}

static size_t count_of(const char *color)
{
    size_t count, walked = 0;
    for (const struct object *x = objects_first(&all, 0, str_of(color), &count); x; x = x->links[0].next)
        walked++;
    assert_int_equal(count, walked);
    return count;
}

static int setup(void **state)
{
    (void)state;
    objects_init(&all, indexes, countof(indexes));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    objects_done(&all);
    return 0;
}

static void objects_are_found_by_key_and_by_what_their_indexes_say(void **state)
{
    (void)state;
    static const char *const colors[] = {"red", "green", "blue"};
    size_t count;
    for (unsigned i = 0; i < 3000; i++)
        put(i, colors[i % 3]);
    assert_int_equal(all.count, 3000);
    assert_int_equal(count_of("red"), 1000);
    assert_non_null(objects_find(&all, STR("k2999")));
    assert_null(objects_find(&all, STR("k3000")));
    const struct object *x = objects_first(&all, 1, STR("green/k1"), &count);
    assert_int_equal(count, 1);
    assert_string_equal(x->key, "k1");
}

static void a_changed_object_moves_in_the_index(void **state)
{
    (void)state;
    struct object *x = put(1, "red");
    put(2, "red");
    assert_ptr_equal(put(1, "blue"), x);
    assert_int_equal(all.count, 2);
    assert_int_equal(count_of("red"), 1);
    assert_int_equal(count_of("blue"), 1);
    put(1, NULL);
    assert_int_equal(count_of("blue"), 0);
    put(1, "red");
    assert_int_equal(count_of("red"), 2);
}

static void what_is_removed_is_in_no_index_and_counts_for_nothing(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 500; i++)
        put(i, i % 2 ? "odd" : "even");
    for (unsigned i = 0; i < 500; i += 2) {
        char key[16];
        snprintf(key, sizeof key, "k%u", i);
        objects_remove(&all, objects_find(&all, str_of(key)));
    }
    assert_int_equal(count_of("even"), 0);
    assert_int_equal(count_of("odd"), 250);
    for (unsigned i = 1; i < 500; i += 2) {
        char key[16];
        snprintf(key, sizeof key, "k%u", i);
        objects_remove(&all, objects_find(&all, str_of(key)));
    }
    assert_int_equal(all.count, 0);
    assert_int_equal(all.text_bytes, 0);
    assert_int_equal(all.tables[0].count, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(objects_are_found_by_key_and_by_what_their_indexes_say),
        TEST(a_changed_object_moves_in_the_index),
        TEST(what_is_removed_is_in_no_index_and_counts_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
