/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "cli/opt.h"

static struct {
    bool json;
    const char *endpoint;
    uint64_t count, bytes, wait_ns;
    struct opt_list include;
} got;

static const struct opt table[] = {
    {"json", 'j', OPT_FLAG, &got.json, NULL, "as JSON"},
    {"endpoint", 0, OPT_TEXT, &got.endpoint, "URL", "where"},
    {"concurrency", 0, OPT_U64, &got.count, "N", "how many", .least = 1, .most = 9},
    {"bandwidth", 0, OPT_BYTES, &got.bytes, "RATE", "how fast", .least = 1},
    {"timeout", 0, OPT_DURATION, &got.wait_ns, "TIME", "how long"},
    {"include", 0, OPT_LIST, &got.include, "GLOB", "which"},
    {0},
};

static const struct opt parsed[] = {{"region", 0, OPT_TEXT, &got.endpoint, "NAME", "at which place"}, {0}};

static int parse(bool others, const char **argv, struct err *err)
{
    int argc = 0;
    while (argv[argc])
        argc++;
    memset(&got, 0, sizeof got);
    int r = opt_parse(table, parsed, others, &argc, (char **)(uintptr_t)argv, err);
    return r < 0 ? r : argc;
}

static void flags_are_removed_in_any_position(void **state)
{
    (void)state;
    struct err err;
    const char *argv[] = {"verb",      "--include=*.bin", "URI",      "-j",          "--concurrency", "7",
                          "--include", "*.txt",           "DIR",      "--bandwidth", "1Ki",           "--timeout",
                          "250ms",     "--endpoint",      "http://h", NULL};
    assert_int_equal(parse(false, argv, &err), 3);
    assert_string_equal(argv[1], "URI");
    assert_string_equal(argv[2], "DIR");
    assert_null(argv[3]);
    assert_true(got.json);
    assert_int_equal(got.count, 7);
    assert_int_equal(got.bytes, 1024);
    assert_int_equal(got.wait_ns, 250000000);
    assert_string_equal(got.endpoint, "http://h");
    assert_int_equal(got.include.count, 2);
    assert_string_equal(got.include.items[0], "*.bin");
}

static void number_out_of_its_range_is_refused_with_the_range(void **state)
{
    (void)state;
    struct err err;
    const char *none[] = {"verb", "--concurrency", "0", NULL}, *many[] = {"verb", "--concurrency=10", NULL},
               *most[] = {"verb", "--concurrency=9", NULL}, *zero[] = {"verb", "--bandwidth", "0Mi", NULL};
    assert_int_equal(parse(false, none, &err), -ERR_INVALID);
    assert_string_equal(err.text, "--concurrency: '0' is not 1 to 9");
    assert_int_equal(got.count, 0);
    assert_int_equal(parse(false, many, &err), -ERR_INVALID);
    assert_int_equal(parse(false, most, &err), 1);
    assert_int_equal(parse(false, zero, &err), -ERR_INVALID);
    assert_string_equal(err.text, "--bandwidth: '0Mi' is not above 0");
}

static void flag_can_be_cleared_again(void **state)
{
    (void)state;
    struct err err;
    const char *argv[] = {"verb", "--json", "--no-json", NULL};
    assert_int_equal(parse(false, argv, &err), 1);
    assert_false(got.json);
}

static void arguments_after_two_dashes_are_not_flags(void **state)
{
    (void)state;
    struct err err;
    const char *argv[] = {"verb", "--", "--json", NULL};
    assert_int_equal(parse(false, argv, &err), 2);
    assert_string_equal(argv[1], "--json");
    assert_false(got.json);
}

static void first_parser_keeps_unknown_flags(void **state)
{
    (void)state;
    struct err err;
    const char *argv[] = {"main", "verb", "--other", "--json", "--", "--json", NULL};
    assert_int_equal(parse(true, argv, &err), 5);
    assert_string_equal(argv[2], "--other");
    assert_string_equal(argv[3], "--");
    assert_string_equal(argv[4], "--json");
}

static void an_unknown_flag_is_refused_with_the_nearest_one(void **state)
{
    (void)state;
    struct err err;
    const char *argv[] = {"verb", "--includ=x", NULL};
    assert_int_equal(parse(false, argv, &err), -ERR_INVALID);
    assert_non_null(strstr(err.text, "did you mean --include?"));
    const char *far[] = {"verb", "--zzzzzzzzzzzz", NULL};
    assert_int_equal(parse(false, far, &err), -ERR_INVALID);
    assert_non_null(strstr(err.text, "--help"));
    const char *global[] = {"verb", "--regoin", "x", NULL};
    assert_int_equal(parse(false, global, &err), -ERR_INVALID);
    assert_non_null(strstr(err.text, "did you mean --region?"));
    const char *bundle[] = {"verb", "-jx", NULL};
    assert_int_equal(parse(false, bundle, &err), -ERR_INVALID);
}

static void a_bad_value_is_refused_and_names_its_flag(void **state)
{
    (void)state;
    struct err err;
    const char *number[] = {"verb", "--concurrency", "x", NULL};
    assert_int_equal(parse(false, number, &err), -ERR_INVALID);
    assert_non_null(strstr(err.text, "--concurrency"));
    const char *missing[] = {"verb", "--endpoint", NULL};
    assert_int_equal(parse(false, missing, &err), -ERR_INVALID);
    const char *too_much[] = {"verb", "--json=1", NULL};
    assert_int_equal(parse(false, too_much, &err), -ERR_INVALID);
}

static void help_has_a_line_for_each_flag(void **state)
{
    (void)state;
    auto_sbuf b;
    sbuf_init(&b, 4096);
    opt_help(table, &b);
    assert_non_null(strstr(b.ptr, "  -j, --json"));
    assert_non_null(strstr(b.ptr, "      --include GLOB"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_are_removed_in_any_position),
        cmocka_unit_test(number_out_of_its_range_is_refused_with_the_range),
        cmocka_unit_test(flag_can_be_cleared_again),
        cmocka_unit_test(arguments_after_two_dashes_are_not_flags),
        cmocka_unit_test(first_parser_keeps_unknown_flags),
        cmocka_unit_test(an_unknown_flag_is_refused_with_the_nearest_one),
        cmocka_unit_test(a_bad_value_is_refused_and_names_its_flag),
        cmocka_unit_test(help_has_a_line_for_each_flag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
