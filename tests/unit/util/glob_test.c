/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/clock.h"
#include "util/glob.h"

static const struct {
    const char *pattern;
    const char *text;
    bool matches;
} cases[] = {
    {"a/b", "a/b", true},
    {"a/b", "a/bc", false},
    {"a/*", "a/b", true},
    {"a/*", "a/", true},
    {"a/*", "a/b/c", false},
    {"a/?", "a/b", true},
    {"a/?", "a//", false},
    {"a/?", "a/\xc3\xbc", true},
    {"a/??", "a/\xc3\xbc", false},
    {"a/?", "a/\xff", true},
    {"a/**", "a/b/c/d", true},
    {"a/**", "a", false},
    {"a/**", "ab/c", false},
    {"a/**/b", "a/b", true},
    {"a/**/b", "a/x/b", true},
    {"a/**/b", "a/x/y/b", true},
    {"a/**/b", "a/xb", false},
    {"a/**/b", "a/x/yb", false},
    {"a/**/b", "ab", false},
    {"**/x", "x", true},
    {"**/x", "a/b/x", true},
    {"**/x", "ax", false},
    {"**/x/**", "a/x/b", true},
    {"a**z/q", "ab/cz/q", true},
    {"**/*.bin", "deep/er/f.bin", true},
    {"*.bin", "deep/er/f.bin", true},
    {"*.bin", "deep.bin/er", false},
    {"er", "deep/er", true},
    {"[abc]", "b", true},
    {"[abc]", "d", false},
    {"[a-c]x", "bx", true},
    {"[!a-c]", "d", true},
    {"[!a-c]", "b", false},
    {"a/[!x]b", "a//b", false},
    {"[]x]", "]", true},
    {"[a-]", "-", true},
    {"[\\]]", "]", true},
    {"[\xc3\xa4-\xc3\xbc]", "\xc3\xb6", true},
    {"\\*", "*", true},
    {"\\*", "a", false},
    {"*", "", true},
    {"a*b*c", "a--b--b--c", true},
    {"a*b*c", "a--b--b--", false},
    {"a/***/b", "a/b", true},
};

static void patterns_match_as_documented(void **state)
{
    (void)state;
    struct err err;
    for (size_t i = 0; i < countof(cases); i++) {
        assert_int_equal(glob_check(str_of(cases[i].pattern), &err), 0);
        if (glob_match(str_of(cases[i].pattern), str_of(cases[i].text)) != cases[i].matches)
            fail_msg("'%s' and '%s'", cases[i].pattern, cases[i].text);
    }
}

static void malformed_patterns_are_named_and_match_nothing(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "[abc", "a\\", "[", "[!", "[]", "[a\\]"};
    struct err err;
    for (size_t i = 0; i < countof(bad); i++) {
        assert_int_equal(glob_check(str_of(bad[i]), &err), -ERR_INVALID);
        assert_false(glob_match(str_of(bad[i]), str_of(bad[i])));
    }
    assert_int_equal(glob_check(STR("ab[c"), &err), -ERR_INVALID);
    assert_string_equal(err.text, "the pattern 'ab[c' is malformed at byte 3: '[' is not closed");
    assert_int_equal(glob_check(STR("a\0b"), &err), -ERR_INVALID);
}

static void match_of_any_pattern_takes_limited_time(void **state)
{
    (void)state;
    static char pattern[1000], text[1024];
    for (size_t i = 0; i + 5 <= sizeof pattern; i += 5)
        memcpy(pattern + i, "**/a*", 5);
    memset(text, 'a', sizeof text);
    for (size_t i = 3; i < sizeof text; i += 4)
        text[i] = '/';
    text[sizeof text - 1] = 'b';
    uint64_t start = clock_now_ns();
    for (unsigned i = 0; i < 10; i++)
        glob_match((struct str){pattern, sizeof pattern}, (struct str){text, sizeof text});
    assert_true(clock_now_ns() - start < 30 * NS_PER_SECOND);
}

static void exclude_wins_and_no_include_means_everything(void **state)
{
    (void)state;
    struct err err;
    struct filter f = {0};
    assert_true(filter_wants(&f, STR("anything/at all")));
    assert_int_equal(filter_add(&f, true, STR("*.tmp"), &err), 0);
    assert_true(filter_wants(&f, STR("a/b.bin")));
    assert_false(filter_wants(&f, STR("a/b.tmp")));
    assert_int_equal(filter_add(&f, false, STR("a/**"), &err), 0);
    assert_true(filter_wants(&f, STR("a/b.bin")));
    assert_false(filter_wants(&f, STR("a/b.tmp")));
    assert_false(filter_wants(&f, STR("b/b.bin")));
    filter_done(&f);
}

static void a_filter_has_a_ceiling(void **state)
{
    (void)state;
    struct err err;
    struct filter f = {0};
    for (unsigned i = 0; i < FILTER_PATTERNS_MAX; i++)
        assert_int_equal(filter_add(&f, false, STR("x"), &err), 0);
    assert_int_equal(filter_add(&f, false, STR("x"), &err), -ERR_NO_SPACE);
    assert_int_equal(filter_add(&f, true, STR("["), &err), -ERR_INVALID);
    filter_done(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_match_as_documented),
        cmocka_unit_test(malformed_patterns_are_named_and_match_nothing),
        cmocka_unit_test(match_of_any_pattern_takes_limited_time),
        cmocka_unit_test(exclude_wins_and_no_include_means_everything),
        cmocka_unit_test(a_filter_has_a_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
