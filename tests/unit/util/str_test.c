/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/str.h"

static void quantities_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},       {"512", 512},          {"10k", 10000},   {"1.5Gi", 1610612736},       {"1Ki", 1024},
                {"0.5Ki", 512}, {"2T", 2000000000000}, {"1e6", 1000000}, {"16383Pi", 16383ULL << 50}, {"0.1", 1}};
    static const char *const bad[] = {"",    "x", "1x", "-1", "1.", ".5", "1 Gi", "16384Pi", "99999999999999999999",
                                      "1GiB"};
    struct err err;
    uint64_t n;
    for (size_t i = 0; i < countof(good); i++) {
        assert_int_equal(str_to_bytes(str_of(good[i].text), &n, &err), 0);
        assert_int_equal(n, good[i].bytes);
    }
    for (size_t i = 0; i < countof(bad); i++)
        assert_int_equal(str_to_bytes(str_of(bad[i]), &n, &err), -ERR_INVALID);
}

static void durations_add_up(void **state)
{
    (void)state;
    struct err err;
    uint64_t ns;
    assert_int_equal(str_to_duration(STR("1h30m"), &ns, &err), 0);
    assert_int_equal(ns, 5400000000000ULL);
    assert_int_equal(str_to_duration(STR("250ms"), &ns, &err), 0);
    assert_int_equal(ns, 250000000);
    assert_int_equal(str_to_duration(STR("1.5s"), &ns, &err), 0);
    assert_int_equal(ns, 1500000000);
    assert_int_equal(str_to_duration(STR("30"), &ns, &err), -ERR_INVALID);
    assert_int_equal(str_to_duration(STR(""), &ns, &err), -ERR_INVALID);
}

static void hex_digit_accepts_only_hexadecimal_characters(void **state)
{
    (void)state;
    static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";
    for (int i = 1; i < 256; i++) {
        const char *at = strchr(lower, i);
        int want = at ? (int)(at - lower) : (at = strchr(upper, i)) != NULL ? (int)(at - upper) : -1;
        assert_int_equal(hex_digit((char)i), want);
    }
    assert_int_equal(hex_digit('\0'), -1);
}

static void distance_to_a_misspelled_word_is_small(void **state)
{
    (void)state;
    char longer[STR_DISTANCE_MAX + 2];
    memset(longer, 'a', sizeof longer);
    assert_int_equal(str_distance(STR("kitten"), STR("sitting")), 3);
    assert_int_equal(str_distance(STR("Export.Since"), STR("export.since")), 0);
    assert_int_equal(str_distance(STR(""), STR("abc")), 3);
    assert_int_equal(str_distance(STR("abc"), STR_NULL), 3);
    assert_int_equal(str_distance((struct str){longer, sizeof longer}, STR("a")), STR_DISTANCE_MAX + 1);
    assert_int_equal(str_distance(STR("a"), (struct str){longer, sizeof longer}), SIZE_MAX);
}

static void a_split_keeps_empty_fields(void **state)
{
    (void)state;
    struct str rest = STR("a//b/"), field;
    static const char *const want[] = {"a", "", "b", ""};
    for (size_t i = 0; i < countof(want); i++) {
        assert_true(str_split(&rest, '/', &field));
        assert_true(str_eq(field, str_of(want[i])));
    }
    assert_false(str_split(&rest, '/', &field));
}

static void full_builder_sets_overflow_and_stays_whole(void **state)
{
    (void)state;
    auto_sbuf b;
    struct err err;
    char *text;
    sbuf_init(&b, 4);
    sbuf_adds(&b, "abcd");
    assert_false(b.overflow);
    sbuf_addc(&b, 'e');
    assert_true(b.overflow);
    assert_string_equal(b.ptr, "abcd");
    assert_int_equal(sbuf_take(&b, &text, &err), -ERR_NO_SPACE);
}

static void str_is_utf8_refuses_other_bytes(void **state)
{
    (void)state;
    assert_true(str_is_utf8(STR("gr\xc3\xbc\xc3\x9f \xf0\x9f\x90\xb3")));
    assert_false(str_is_utf8(STR("\xc0\xaf")));
    assert_false(str_is_utf8(STR("\xed\xa0\x80")));
    assert_false(str_is_utf8(STR("\xf4\x90\x80\x80")));
    assert_false(str_is_utf8(STR("a\0b")));
    assert_false(str_is_utf8(STR("\xe2\x82")));
}

static void bytes_read_well(void **state)
{
    (void)state;
    char buf[BYTES_TEXT_MAX];
    assert_string_equal(bytes_text(831, buf), "831 B");
    assert_string_equal(bytes_text(1536, buf), "1.50 KiB");
    assert_string_equal(bytes_text(1023 * 1024, buf), "1.00 MiB");
    assert_string_equal(bytes_text(UINT64_MAX, buf), "16.0 EiB");
}

static void a_hash_is_of_the_bytes_and_of_the_seed(void **state)
{
    (void)state;
    assert_true(str_hash(STR("pvc-1"), 7) == str_hash(str_of("pvc-1"), 7));
    assert_true(str_hash(STR("pvc-1"), 7) != str_hash(STR("pvc-2"), 7));
    assert_true(str_hash(STR("pvc-1"), 7) != str_hash(STR("pvc-1"), 8));
    assert_true(str_hash(STR_NULL, 7) == str_hash(STR(""), 7));
}

static void dupf_formats_into_a_new_string(void **state)
{
    (void)state;
    auto_mem char *text = str_dupf("%s/%d", "a", 7);
    assert_string_equal(text, "a/7");
}

static void bytes_of_a_set_and_visible_ones_are_known(void **state)
{
    (void)state;
    assert_true(str_is_of(STR("a-1"), CHARS_LOWER CHARS_DIGITS "-"));
    assert_false(str_is_of(STR("a-B"), CHARS_LOWER CHARS_DIGITS "-"));
    assert_false(str_is_of(STR("a\0"), CHARS_LOWER));
    assert_true(str_is_of(STR_NULL, ""));
    assert_true(str_is_visible(STR("!az~"), ""));
    assert_true(str_is_visible(STR_NULL, ""));
    static const char *const hidden[] = {"a b", "a\x7f", "a\n", "\xc3\xa9", "a\"b"};
    for (size_t i = 0; i < countof(hidden); i++)
        assert_false(str_is_visible(str_of(hidden[i]), "\""));
    assert_false(str_is_visible(STR("a\0b"), ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_a_set_and_visible_ones_are_known),
        cmocka_unit_test(a_hash_is_of_the_bytes_and_of_the_seed),
        cmocka_unit_test(quantities_are_exact),
        cmocka_unit_test(durations_add_up),
        cmocka_unit_test(hex_digit_accepts_only_hexadecimal_characters),
        cmocka_unit_test(distance_to_a_misspelled_word_is_small),
        cmocka_unit_test(a_split_keeps_empty_fields),
        cmocka_unit_test(full_builder_sets_overflow_and_stays_whole),
        cmocka_unit_test(str_is_utf8_refuses_other_bytes),
        cmocka_unit_test(bytes_read_well),
        cmocka_unit_test(dupf_formats_into_a_new_string),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
