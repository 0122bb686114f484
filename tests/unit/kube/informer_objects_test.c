/* SPDX-License-Identifier: Apache-2.0 */
#include "informer_objects.h"
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

static const struct kube_index indexes[] = {{.value = by_color}, {.value = by_place}};
static struct informer_objects all;

static struct informer_object *put(unsigned n, const char *color)
{
    char key[16];
    struct informer_object *x;
    auto_json j = json_new_object();
    snprintf(key, sizeof key, "k%u", n);
    json_set_str(j, "name", str_of(key));
    json_set_str(j, "metadata.resourceVersion", STR("1"));
    if (color)
        json_set_str(j, "color", str_of(color));
    informer_objects_put(&all, str_of(key), j, &x);
    return x;
}

static size_t count_of(const char *color)
{
    size_t walked = 0;
    struct informer_object *x;
    const struct index_value *v = informer_objects_with(&all, 0, str_of(color));
    if (!v)
        return 0;
    list_foreach (&v->objects, x, links[0].node)
        walked++;
    assert_int_equal(v->count, walked);
    return walked;
}

static int setup(void **state)
{
    (void)state;
    informer_objects_init(&all, indexes, countof(indexes));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    informer_objects_done(&all);
    return 0;
}

static void objects_are_found_by_key_and_by_index(void **state)
{
    (void)state;
    static const char *const colors[] = {"red", "green", "blue"};
    for (unsigned i = 0; i < 3000; i++)
        put(i, colors[i % 3]);
    assert_int_equal(all.by_key.count, 3000);
    assert_int_equal(count_of("red"), 1000);
    assert_non_null(informer_objects_find(&all, STR("k2999")));
    assert_null(informer_objects_find(&all, STR("k3000")));
    const struct index_value *v = informer_objects_with(&all, 1, STR("green/k1"));
    assert_non_null(v);
    assert_int_equal(v->count, 1);
    assert_string_equal(list_first(&v->objects, struct informer_object, links[1].node)->key, "k1");
}

static void a_changed_object_moves_in_the_index(void **state)
{
    (void)state;
    struct informer_object *x = put(1, "red");
    put(2, "red");
    assert_ptr_equal(put(1, "blue"), x);
    assert_int_equal(all.by_key.count, 2);
    assert_int_equal(count_of("red"), 1);
    assert_int_equal(count_of("blue"), 1);
    put(1, NULL);
    assert_int_equal(count_of("blue"), 0);
    put(1, "red");
    assert_int_equal(count_of("red"), 2);
}

static void removed_object_is_in_no_index(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 500; i++)
        put(i, i % 2 ? "odd" : "even");
    for (unsigned i = 0; i < 500; i += 2) {
        char key[16];
        snprintf(key, sizeof key, "k%u", i);
        informer_objects_remove(&all, informer_objects_find(&all, str_of(key)));
    }
    assert_int_equal(count_of("even"), 0);
    assert_int_equal(count_of("odd"), 250);
    for (unsigned i = 1; i < 500; i += 2) {
        char key[16];
        snprintf(key, sizeof key, "k%u", i);
        informer_objects_remove(&all, informer_objects_find(&all, str_of(key)));
    }
    assert_int_equal(all.by_key.count, 0);
    assert_int_equal(all.values[0].count, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(objects_are_found_by_key_and_by_index),
        TEST(a_changed_object_moves_in_the_index),
        TEST(removed_object_is_in_no_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
