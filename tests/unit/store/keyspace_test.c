/* SPDX-License-Identifier: Apache-2.0 */
#include "keyspace.h"
#include "unit.h"
#include <stdio.h>

static struct keyspace seen(const char *prefix, const char *const *keys, size_t count)
{
    struct keyspace k = {.prefix_len = strlen(prefix)};
    for (size_t i = 0; i < count; i++)
        keyspace_see(&k, str_of(keys[i]));
    return k;
}

static const char *cut(const struct keyspace *k, const char *after, const char *end, enum keyspace_trust trust)
{
    static char text[256];
    auto_sbuf b;
    sbuf_init(&b, sizeof text - 1);
    if (!keyspace_split(k, str_of(after), str_of(end), trust, &b))
        return NULL;
    assert_true(str_cmp(str_of(after), sbuf_str(&b)) < 0);
    assert_true(!end || str_cmp(sbuf_str(&b), str_of(end)) < 0);
    assert_true(str_is_utf8(sbuf_str(&b)));
    snprintf(text, sizeof text, "%s", b.ptr);
    return text;
}

static void numbers_are_cut_in_the_middle(void **state)
{
    static const char *const keys[] = {"d/object-000", "d/object-999"};
    struct keyspace k = seen("d/", keys, countof(keys));
    (void)state;
    assert_string_equal(cut(&k, "d/object-099", NULL, KEYSPACE_SEEN), "d/object-5");
    assert_string_equal(cut(&k, "d/object-199", "d/object-5", KEYSPACE_SEEN), "d/object-3");
    assert_string_equal(cut(&k, "d/object-399", "d/object-5", KEYSPACE_SEEN), "d/object-4");
    /* The end's own beginning, when no byte lies between. */
    assert_string_equal(cut(&k, "d/object-399", "d/object-45", KEYSPACE_SEEN), "d/object-4");
    assert_string_equal(cut(&k, "d/object-099", "d/object-1", KEYSPACE_SEEN) ? "cut" : "none", "none");
}

static void a_digit_stands_for_all_and_a_letter_for_itself(void **state)
{
    static const char *const keys[] = {"a0", "a1"};
    struct keyspace k = seen("", keys, countof(keys));
    (void)state;
    assert_string_equal(cut(&k, "a1", NULL, KEYSPACE_SEEN), "a5");
    assert_null(cut(&k, "a9", NULL, KEYSPACE_SEEN));
}

static void a_guess_finds_what_begins_with_something_new(void **state)
{
    static const char *const keys[] = {"a/key-0"};
    struct keyspace k = seen("", keys, countof(keys));
    (void)state;
    assert_null(cut(&k, "a/key-9", NULL, KEYSPACE_SEEN));
    assert_string_equal(cut(&k, "a/key-9", NULL, KEYSPACE_GUESS), "k");
}

static void a_character_is_never_torn(void **state)
{
    static const char *const keys[] = {"\xc3\xa9"
                                       "0",
                                       "\xc3\xbc"
                                       "9",
                                       "x\xe6\x97\xa5"
                                       "5"};
    struct keyspace k = seen("", keys, countof(keys));
    (void)state;
    cut(&k,
        "\xc3\xa9"
        "0",
        "\xc3\xbc"
        "9",
        KEYSPACE_SEEN);
    cut(&k,
        "\xc3\xa9"
        "0",
        NULL, KEYSPACE_GUESS);
    cut(&k,
        "x\xe6\x97\xa5"
        "5",
        NULL, KEYSPACE_GUESS);
    cut(&k,
        "x\xe6\x97\xa5"
        "1",
        "x\xe6\x97\xa6"
        "1",
        KEYSPACE_GUESS);
}

/* xorshift; https://www.jstatsoft.org/article/view/v008i14 */
static unsigned dice(void)
{
    static uint32_t x = 2463534242;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return x;
}

/* For any keys, the cut lies between them, and repeated cuts come to an end. */
static void a_cut_lies_strictly_between(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        char a[12], b[12];
        const char *const keys[] = {a, b};
        for (int i = 0; i < 12; i++) {
            a[i] = "019ab/z~"[dice() % 8];
            b[i] = "019ab/z~"[dice() % 8];
        }
        a[dice() % 12] = b[dice() % 12] = '\0';
        a[11] = b[11] = '\0';
        struct keyspace k = seen("", keys, 2);
        if (strcmp(a, b) < 0) {
            cut(&k, a, b, KEYSPACE_SEEN);
            cut(&k, a, b, KEYSPACE_GUESS);
        }
        cut(&k, a, NULL, KEYSPACE_GUESS);
    }
}

static void pages_left_are_counted_by_the_one_before(void **state)
{
    static const char *const keys[] = {"o-0000", "o-0999"};
    struct keyspace k = seen("o-", keys, countof(keys));
    (void)state;
    double left = keyspace_pages(&k, str_of("o-0000"), str_of("o-0999"), str_of("o-0999"), str_of("o-5"));
    assert_true(left > 3 && left < 5);
    assert_true(keyspace_pages(&k, str_of("o-0000"), str_of("o-0999"), str_of("o-6"), str_of("o-5")) == 0);
    assert_true(keyspace_pages(&k, str_of("o-4000"), str_of("o-5999"), str_of("o-5999"), str_of("o-5")) == 0);
}

static const char *ahead(const struct keyspace *k, const char *first, const char *last, const char *end, double pages)
{
    static char text[256];
    auto_sbuf b;
    sbuf_init(&b, sizeof text - 1);
    if (!keyspace_ahead(k, str_of(first), str_of(last), str_of(last), str_of(end), pages, &b))
        return NULL;
    snprintf(text, sizeof text, "%s", b.ptr);
    return text;
}

static void a_cut_ahead_is_so_many_pages_away(void **state)
{
    static const char *const keys[] = {"d/hot/object-000012500", "d/hot/object-000013499", "d/a", "d/z"};
    struct keyspace k = seen("d/", keys, countof(keys));
    (void)state;
    const char *got = ahead(&k, keys[0], keys[1], NULL, 8);
    assert_non_null(got);
    assert_true(strcmp(got, "d/hot/object-000019") > 0 && strcmp(got, "d/hot/object-000024") < 0);
    got = ahead(&k, keys[0], keys[1], "d/hot/object-9", 100);
    assert_non_null(got);
    assert_true(strcmp(got, "d/hot/object-000090") > 0 && strcmp(got, "d/hot/object-000150") < 0);
    /* Over a step of ten, and of a thousand. */
    got = ahead(&k, "d/hot/object-000198999", "d/hot/object-000199998", NULL, 3);
    assert_non_null(got);
    assert_true(strcmp(got, "d/hot/object-000201") > 0 && strcmp(got, "d/hot/object-000205") < 0);
    assert_null(ahead(&k, keys[0], keys[1], "d/hot/object-000014", 100));
    assert_null(ahead(&k, keys[0], keys[0], NULL, 100));
    assert_null(ahead(&k, keys[1], keys[0], NULL, 100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_cut_in_the_middle),
        cmocka_unit_test(a_digit_stands_for_all_and_a_letter_for_itself),
        cmocka_unit_test(a_guess_finds_what_begins_with_something_new),
        cmocka_unit_test(a_character_is_never_torn),
        cmocka_unit_test(a_cut_lies_strictly_between),
        cmocka_unit_test(pages_left_are_counted_by_the_one_before),
        cmocka_unit_test(a_cut_ahead_is_so_many_pages_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
