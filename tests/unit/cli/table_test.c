/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"
#include "unit.h"

static const char *const headings[] = {"NAME", ">SIZE", "PHASE", NULL};

static void columns_are_as_wide_as_their_widest_cell(void **state)
{
    (void)state;
    auto_table t;
    auto_sbuf b;
    sbuf_init(&b, 10000);
    table_init(&t, headings);
    table_add(&t, (struct str[]){STR("a"), STR("1.50 GiB"), STR("Ready")});
    table_add(&t, (struct str[]){STR("gr\xc3\xbc\xc3\x9f"
                                     "e"),
                                 STR("7 B"), STR("Failed")});
    table_write(&t, &b);
    assert_string_equal(b.ptr, "NAME        SIZE   PHASE\n"
                               "a       1.50 GiB   Ready\n"
                               "gr\xc3\xbc\xc3\x9f"
                               "e        7 B   Failed\n");
}

static void control_characters_are_shown_as_question_marks(void **state)
{
    (void)state;
    auto_table t;
    auto_sbuf b;
    sbuf_init(&b, 10000);
    table_init(&t, headings);
    table_add(&t, (struct str[]){STR("a\x1b[2J\n"), STR("\xff"), STR_NULL});
    table_write(&t, &b);
    assert_non_null(strstr(b.ptr, "a?[2J?"));
    assert_null(strchr(b.ptr, 0x1b));
}

static void rows_beyond_the_limit_are_counted(void **state)
{
    (void)state;
    auto_table t;
    auto_sbuf b;
    sbuf_init(&b, 64 << 20);
    table_init(&t, headings);
    for (unsigned i = 0; i < TABLE_ROWS_MAX + 4; i++)
        table_add(&t, (struct str[]){STR("a"), STR("b"), STR("c")});
    table_write(&t, &b);
    assert_non_null(strstr(b.ptr, "\n... and 5 more\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_as_wide_as_their_widest_cell),
        cmocka_unit_test(control_characters_are_shown_as_question_marks),
        cmocka_unit_test(rows_beyond_the_limit_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
