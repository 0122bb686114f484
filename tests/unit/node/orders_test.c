/* SPDX-License-Identifier: Apache-2.0 */
#include "orders.h"
#include "unit.h"
#include <stdio.h>

static char reported[256];

static void tell(void *ctx, const char *name, const struct err *why)
{
    (void)ctx;
    size_t used = strlen(reported);
    snprintf(reported + used, sizeof reported - used, "%s%s ", name, why ? "!" : "");
}

/* A list of one page. */
static void take_list(struct orders *s, json *items, bool all)
{
    struct err err;
    reported[0] = '\0';
    orders_list_begin(s);
    assert_int_equal(orders_list_page(s, items, all, tell, NULL, &err), 0);
    orders_list_end(s);
}

static json *object(const char *name, unsigned version, const char *pool)
{
    struct err err;
    char text[512];
    json *j = NULL;
    snprintf(text, sizeof text,
             "{\"apiVersion\":\"cistern.io/v1alpha1\",\"kind\":\"CisternVolume\",\"metadata\":{\"name\":\"%s\","
             "\"resourceVersion\":\"%u\"},\"spec\":{\"volumeID\":\"v1-0123456789ab-0123456789ab\",\"nodeName\":\"n\","
             "\"pool\":%s,\"capacityBytes\":1}}",
             name, version, pool);
    assert_int_equal(json_parse(str_of(text), "a test's object", &j, &err), 0);
    return j;
}

static void a_list_drops_missing_orders_and_reports_listed_ones(void **state)
{
    (void)state;
    struct orders *s = orders_new();
    auto_json first = json_new_array();
    auto_json second = json_new_array();
    json_append(first, object("c", 1, "\"p\""));
    json_append(first, object("a", 1, "\"p\""));
    json_append(first, object("b", 1, "\"p\""));
    json_append(second, object("b", 2, "\"p\""));
    take_list(s, first, false);
    assert_string_equal(reported, "c a b ");
    assert_true(orders_has(s, "a") && orders_has(s, "b") && orders_has(s, "c"));
    take_list(s, second, false);
    assert_false(orders_has(s, "a") || orders_has(s, "c"));
    auto_api_volume b = orders_get(s, "b");
    assert_string_equal(b->meta.resource_version, "2");
    assert_null(orders_get(s, "a"));
    orders_free(s);
}

static void only_orders_changed_since_the_last_list_are_reported_unless_all_are_requested(void **state)
{
    (void)state;
    struct orders *s = orders_new();
    auto_json before = json_new_array();
    auto_json after = json_new_array();
    auto_json written = object("own", 5, "\"p\"");
    json_append(before, object("same", 1, "\"p\""));
    json_append(before, object("theirs", 2, "\"p\""));
    json_append(before, object("own", 3, "\"p\""));
    json_append(after, object("same", 1, "\"p\""));
    json_append(after, object("theirs", 4, "\"p\""));
    json_append(after, object("own", 5, "\"p\""));
    take_list(s, before, false);
    /* The reply to the node's write may contain a change of the controller's: it is reported too. */
    orders_put(s, "own", written, true, 1);
    take_list(s, after, false);
    assert_string_equal(reported, "theirs own ");
    take_list(s, after, false);
    assert_string_equal(reported, "");
    take_list(s, after, true);
    assert_string_equal(reported, "same theirs own ");
    orders_free(s);
}

static void an_unreadable_object_is_reported_and_harms_no_other(void **state)
{
    (void)state;
    struct orders *s = orders_new();
    auto_json list = json_new_array();
    json_append(list, object("bad", 1, "7"));
    json_append(list, object("good", 1, "\"p\""));
    take_list(s, list, false);
    assert_string_equal(reported, "bad! good ");
    assert_true(orders_has(s, "good"));
    assert_false(orders_has(s, "bad"));
    orders_free(s);
}

static void a_list_of_several_pages_that_begins_again_counts_from_there(void **state)
{
    (void)state;
    struct err err;
    struct orders *s = orders_new();
    auto_json first = json_new_array();
    auto_json second = json_new_array();
    json_append(first, object("a", 1, "\"p\""));
    json_append(second, object("b", 1, "\"p\""));
    orders_list_begin(s);
    assert_int_equal(orders_list_page(s, first, false, tell, NULL, &err), 0);
    assert_int_equal(orders_list_page(s, second, false, tell, NULL, &err), 0);
    orders_list_end(s);
    assert_true(orders_has(s, "a") && orders_has(s, "b"));
    orders_list_begin(s);
    assert_int_equal(orders_list_page(s, first, false, tell, NULL, &err), 0);
    orders_list_begin(s); /* the server no longer had it */
    assert_int_equal(orders_list_page(s, second, false, tell, NULL, &err), 0);
    orders_list_end(s);
    assert_false(orders_has(s, "a"));
    assert_true(orders_has(s, "b"));
    orders_free(s);
}

static void an_older_answer_does_not_hide_a_newer_one(void **state)
{
    (void)state;
    struct orders *s = orders_new();
    auto_json list = json_new_array();
    auto_json newer = object("a", 12, "\"newer\"");
    json_append(list, object("a", 9, "\"p\""));
    take_list(s, list, false);
    orders_put(s, "a", newer, true, 77);
    assert_int_equal(orders_active(s), 1);
    assert_int_equal(orders_written_ns(s, "a"), 77);
    take_list(s, list, false);
    auto_api_volume a = orders_get(s, "a");
    assert_string_equal(a->pool, "newer");
    orders_drop(s, "a");
    orders_put(s, "a", newer, true, 78); /* the answer to a write for an order that is gone */
    assert_false(orders_has(s, "a"));
    orders_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_drops_missing_orders_and_reports_listed_ones),
        cmocka_unit_test(only_orders_changed_since_the_last_list_are_reported_unless_all_are_requested),
        cmocka_unit_test(an_unreadable_object_is_reported_and_harms_no_other),
        cmocka_unit_test(a_list_of_several_pages_that_begins_again_counts_from_there),
        cmocka_unit_test(an_older_answer_does_not_hide_a_newer_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
