/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/json.h"

static json *parsed(const char *text)
{
    struct err err;
    json *j;
    if (json_parse(str_of(text), "it", &j, &err) < 0)
        fail_msg("%s", err.text);
    return j;
}

static void members_are_read_by_path(void **state)
{
    (void)state;
    struct err err;
    struct str s;
    uint64_t u;
    int64_t i;
    bool yes;
    auto_json j = parsed("{\"a\":{\"b\":[{\"c\":\"x\\u00fc\"},{\"n\":7}]},\"neg\":-3,\"yes\":true}");
    assert_int_equal(json_get_str(j, "a.b.0.c", &s, &err), 0);
    assert_true(str_eq(s, STR("x\xc3\xbc")));
    assert_int_equal(json_get_u64(j, "a.b.1.n", &u, &err), 0);
    assert_int_equal(u, 7);
    assert_int_equal(json_get_i64(j, "neg", &i, &err), 0);
    assert_int_equal(i, -3);
    assert_int_equal(json_get_bool(j, "yes", &yes, &err), 0);
    assert_true(yes);
    assert_int_equal(json_count(json_at(j, "a.b")), 2);
    assert_int_equal(json_count(json_at(j, "nowhere")), 0);
    assert_null(json_at(j, "a.b.2"));
    assert_null(json_at(j, "a.b.x"));
    assert_null(json_at(j, "neg.x"));
}

static void a_failed_read_names_the_path_and_leaves_the_output(void **state)
{
    (void)state;
    struct err err;
    struct str s = STR("before");
    uint64_t u = 5;
    auto_json j = parsed("{\"spec\":{\"size\":\"12\",\"n\":-1,\"none\":null,\"f\":1.5}}");
    assert_int_equal(json_get_u64(j, "spec.size", &u, &err), -ERR_INVALID);
    assert_string_equal(err.text, "'spec.size' is not a whole number from 0 up");
    assert_int_equal(json_get_u64(j, "spec.n", &u, &err), -ERR_INVALID);
    assert_int_equal(json_get_u64(j, "spec.f", &u, &err), -ERR_INVALID);
    assert_int_equal(json_get_str(j, "spec.none", &s, &err), -ERR_NOT_FOUND);
    assert_int_equal(json_get_str(j, "spec.uri", &s, &err), -ERR_NOT_FOUND);
    assert_string_equal(err.text, "'spec.uri' is missing");
    assert_true(u == 5 && str_eq(s, STR("before")));
}

static void an_optional_member_may_be_absent_but_not_of_another_type(void **state)
{
    (void)state;
    struct err err;
    struct str s = STR("default");
    bool yes = true;
    int64_t i = 4;
    uint64_t u = 4;
    auto_json j = parsed("{\"s\":1,\"b\":null}");
    assert_int_equal(json_opt_str(j, "none", &s, &err), 0);
    assert_int_equal(json_opt_bool(j, "b", &yes, &err), 0);
    assert_int_equal(json_opt_i64(j, "x.y", &i, &err), 0);
    assert_int_equal(json_opt_u64(j, "s", &u, &err), 0);
    assert_true(str_eq(s, STR("default")) && yes && i == 4 && u == 1);
    assert_int_equal(json_opt_str(j, "s", &s, &err), -ERR_INVALID);
    assert_int_equal(json_opt_bool(j, "s", &yes, &err), -ERR_INVALID);
}

static void json_that_is_not_one_document_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "{",
                                      "{\"a\":1,\"a\":2}",
                                      "{} x",
                                      "{\"a\":\"\xff\"}",
                                      "[1,]",
                                      "nul",
                                      "{\"a\":99999999999999999999}",
                                      "\"\\u0000\""};
    struct err err;
    json *j = NULL;
    for (size_t i = 0; i < countof(bad); i++)
        assert_int_equal(json_parse(str_of(bad[i]), "the reply", &j, &err), -ERR_INVALID);
    assert_non_null(strstr(err.text, "the reply is not JSON: line 1"));
    assert_null(j);
    static char deep[100001];
    memset(deep, '[', sizeof deep - 1);
    assert_int_equal(json_parse(str_of(deep), "a deep one", &j, &err), -ERR_INVALID);
}

static void members_are_walked_in_their_order(void **state)
{
    (void)state;
    static const char *const keys[] = {"z", "a", "m"};
    size_t n = 0;
    auto_json j = parsed("{\"z\":0,\"a\":1,\"m\":2}");
    for (void *i = json_iter(j); i; i = json_iter_next(j, i), n++) {
        uint64_t u;
        struct err err;
        assert_true(str_eq(json_iter_key(i), str_of(keys[n])));
        assert_int_equal(json_get_u64(j, keys[n], &u, &err), 0);
        assert_int_equal(u, n);
        assert_non_null(json_iter_value(i));
    }
    assert_int_equal(n, 3);
}

static void a_built_tree_is_written_in_order(void **state)
{
    (void)state;
    struct err err;
    json *ratio;
    auto_json j = json_new_object();
    json_set_str(j, "spec.uri", STR("s3://b/"));
    json_set_u64(j, "spec.size", UINT64_MAX);
    json_set_i64(j, "neg", -1);
    json_set_bool(j, "yes", true);
    assert_int_equal(json_parse(STR("0.1"), "a number", &ratio, &err), 0);
    json_set(j, "ratio", ratio);
    json_set(j, "none", json_new_null());
    json_set(j, "list", json_new_array());
    json_append_str((json *)json_at(j, "list"), STR("x"));
    auto_mem char *text = json_text(j, 0);
    assert_string_equal(text, "{\"spec\":{\"uri\":\"s3://b/\",\"size\":9223372036854775807},\"neg\":-1,\"yes\":true,"
                              "\"ratio\":0.1,\"none\":null,\"list\":[\"x\"]}");
    auto_mem char *lines = json_text(json_at(j, "list"), 2);
    assert_string_equal(lines, "[\n  \"x\"\n]");
}

static void an_exact_text_parses_to_the_same_numbers(void **state)
{
    (void)state;
    struct err err;
    auto_json j = NULL;
    auto_json again = NULL;
    assert_int_equal(json_parse(STR("[1.7976931348623157e308,0.1,-2.2250738585072014e-308]"), "numbers", &j, &err), 0);
    auto_mem char *text = json_text_exact(j);
    assert_int_equal(json_parse(str_of(text), "numbers", &again, &err), 0);
    assert_true(json_same(j, again));
}

static void bytes_that_are_not_utf8_become_a_replacement(void **state)
{
    (void)state;
    auto_json j = json_new_object();
    json_set_str(j, "k",
                 STR("a\xff\xfe"
                     "b\xc3\xbc\0c\xe2\x82"));
    json_set_str(j, "empty", STR_NULL);
    auto_mem char *text = json_text(j, 0);
    assert_string_equal(text, "{\"k\":\"a\xef\xbf\xbd\xef\xbf\xbd"
                              "b\xc3\xbc\xef\xbf\xbd"
                              "c\xef\xbf\xbd\xef\xbf\xbd\","
                              "\"empty\":\"\"}");
}

static void a_member_with_dots_in_its_name_is_found_and_set_by_the_whole_name(void **state)
{
    (void)state;
    auto_json j = parsed("{\"a.b/c\":\"x\",\"a\":{\"b/c\":\"y\"}}");
    assert_true(str_eq(json_member_str(j, "a.b/c"), STR("x")));
    assert_null(json_member_str(j, "a").ptr);
    assert_null(json_member_str(NULL, "a").ptr);
    json_set_member(j, "a.b/c", json_new_array());
    auto_mem char *text = json_text(j, 0);
    assert_string_equal(text, "{\"a.b/c\":[],\"a\":{\"b/c\":\"y\"}}");
}

static void members_are_taken_out_and_removed_and_the_rest_stays(void **state)
{
    (void)state;
    auto_json j = parsed("{\"a\":{\"b\":[1],\"c\":2},\"d\":3}");
    auto_json copy = json_copy_of(j);
    auto_json b = json_take_at(j, "a.b");
    assert_int_equal(json_count(b), 1);
    assert_null(json_take_at(j, "a.b"));
    assert_null(json_take_at(j, "d.e.f"));
    json_remove(j, "d");
    json_remove(j, "nothing.there");
    auto_mem char *text = json_text(j, 0), *whole = json_text(copy, 0);
    assert_string_equal(text, "{\"a\":{\"c\":2}}");
    assert_string_equal(whole, "{\"a\":{\"b\":[1],\"c\":2},\"d\":3}");
}

static void an_array_is_extended_by_another(void **state)
{
    (void)state;
    auto_json j = parsed("[1]");
    json_extend(j, parsed("[2,{\"x\":3}]"));
    auto_mem char *text = json_text(j, 0);
    assert_string_equal(text, "[1,2,{\"x\":3}]");
}

static void str_at_of_another_type_or_nothing_is_empty(void **state)
{
    (void)state;
    struct err err;
    auto_json j = NULL;
    assert_int_equal(json_parse(STR("{\"a\":{\"b\":\"c\"},\"n\":1}"), "test", &j, &err), 0);
    assert_true(str_eq(json_str_at(j, "a.b"), STR("c")));
    assert_int_equal(json_str_at(j, "n").len, 0);
    assert_false(json_bool_at(j, "n") || json_bool_at(j, "a.b") || json_bool_at(j, "a.x"));
    assert_int_equal(json_str_at(j, "a.x").len, 0);
}

static void strings_are_read_up_to_the_first_that_is_missing(void **state)
{
    (void)state;
    struct err err;
    struct str a = STR("unset"), b = STR("unset"), c = STR("unset");
    auto_json j = NULL;
    assert_int_equal(json_parse(STR("{\"x\":{\"a\":\"1\"},\"c\":\"3\"}"), "test", &j, &err), 0);
    assert_int_equal(json_strings(j, &err, {"x.a", &a}, {"?b", &b}, {"?c", &c}), 0);
    assert_true(str_eq(a, STR("1")) && str_eq(b, STR("unset")) && str_eq(c, STR("3")));
    c = STR("unset");
    assert_int_equal(json_strings(j, &err, {"b", &b}, {"c", &c}), -ERR_NOT_FOUND);
    assert_true(str_eq(c, STR("unset")));
    assert_int_equal(json_strings(j, &err, {"?x", &a}), -ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_read_up_to_the_first_that_is_missing),
        cmocka_unit_test(members_are_read_by_path),
        cmocka_unit_test(a_failed_read_names_the_path_and_leaves_the_output),
        cmocka_unit_test(an_optional_member_may_be_absent_but_not_of_another_type),
        cmocka_unit_test(json_that_is_not_one_document_is_refused),
        cmocka_unit_test(members_are_walked_in_their_order),
        cmocka_unit_test(a_built_tree_is_written_in_order),
        cmocka_unit_test(an_exact_text_parses_to_the_same_numbers),
        cmocka_unit_test(bytes_that_are_not_utf8_become_a_replacement),
        cmocka_unit_test(a_member_with_dots_in_its_name_is_found_and_set_by_the_whole_name),
        cmocka_unit_test(members_are_taken_out_and_removed_and_the_rest_stays),
        cmocka_unit_test(an_array_is_extended_by_another),
        cmocka_unit_test(str_at_of_another_type_or_nothing_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
