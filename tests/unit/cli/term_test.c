/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "cli/exit.h"
#include "cli/term.h"

static void bar_has_percent_bytes_rate_eta_objects_and_errors(void **state)
{
    (void)state;
    struct term_progress p = {.bytes = 86 * (UINT64_C(1) << 30),
                              .bytes_total = 140 * (UINT64_C(1) << 30),
                              .objects = 117,
                              .objects_total = 191,
                              .errors = 1,
                              .retries = 2,
                              .rate = 7.1e9,
                              .total_is_final = true};
    auto_sbuf b;
    sbuf_init(&b, 1024);
    term_bar(&p, 56, &b);
    assert_string_equal(b.ptr, "[#######------] 61% 86.0 GiB/140 GiB 6.61 GiB/s ETA 0:08");
    sbuf_clear(&b);
    term_counts(&p, &b);
    assert_string_equal(b.ptr, "objects 117/191 errors 1 retries 2");
}

static void bar_has_no_eta_while_the_listing_runs(void **state)
{
    (void)state;
    struct term_progress p = {.bytes = 10, .bytes_total = 20, .objects = 1, .objects_total = 2, .rate = 5};
    auto_sbuf b;
    sbuf_init(&b, 1024);
    term_bar(&p, 80, &b);
    assert_null(strstr(b.ptr, "ETA"));
    sbuf_clear(&b);
    term_counts(&p, &b);
    assert_non_null(strstr(b.ptr, "objects 1/2+"));
    assert_true(term_eta_seconds(&p) == UINT64_MAX);
}

static void nothing_to_do_is_not_a_division_by_zero(void **state)
{
    (void)state;
    struct term_progress p = {.total_is_final = true};
    auto_sbuf b;
    sbuf_init(&b, 1024);
    term_bar(&p, 80, &b);
    assert_non_null(strstr(b.ptr, "] 0% 0 B/0 B 0 B/s"));
}

static void bar_fits_each_width_from_60_columns(void **state)
{
    (void)state;
    const uint64_t sizes[] = {0, 1, UINT64_C(999) << 30, UINT64_C(100) << 50};
    for (size_t width = 59; width < 200; width++)
        for (size_t i = 0; i < countof(sizes); i++) {
            struct term_progress p = {
                .bytes = sizes[i], .bytes_total = 2 * sizes[i], .rate = (double)sizes[i] / 4e5, .total_is_final = true};
            auto_sbuf b = SBUF(1024);
            term_bar(&p, width, &b);
            assert_true(b.len <= width && b.ptr[0] == '[');
        }
}

static void json_text_is_always_valid_utf8(void **state)
{
    (void)state;
    auto_sbuf b;
    sbuf_init(&b, 4096);
    sbuf_addc(&b, '{');
    term_json_str(&b, "object", (struct str){"a\"\\\n\xff\xc3\xa9\xf0\x9f\x92\xa7\xc3", 12});
    assert_string_equal(b.ptr, "{\"object\":\"a\\\"\\\\\\u000a\\ufffd\xc3\xa9\xf0\x9f\x92\xa7\\ufffd\"");
}

static void error_has_the_exit_code_of_the_manual(void **state)
{
    (void)state;
    assert_int_equal(exit_code_of(ERR_NOT_FOUND), 3);
    assert_int_equal(exit_code_of(ERR_DENIED), 4);
    assert_int_equal(exit_code_of(ERR_TIMEOUT), 5);
    assert_int_equal(exit_code_of(ERR_NO_SPACE), 6);
    assert_int_equal(exit_code_of(ERR_CHANGED), 7);
    assert_int_equal(exit_code_of(ERR_CORRUPT), 7);
    assert_int_equal(exit_code_of(ERR_CANCELLED), 8);
    assert_int_equal(exit_code_of(ERR_UNSUPPORTED), 10);
}

static void failed_write_is_reported_at_the_end(void **state)
{
    (void)state;
    struct err err = {0};
    FILE *full = fopen("/dev/full", "we"), *fine = fopen("/dev/null", "we");
    assert_non_null(full);
    assert_non_null(fine);
    fputs("lost", full);
    fflush(full);
    fputs("kept", fine);
    assert_int_equal(term_flush(full, "the list", &err), -ERR_IO); /* nothing is buffered any more: why, is not known */
    assert_non_null(strstr(err.text, "the list"));
    fputs("lost, too", full);
    assert_int_equal(term_flush(full, "the list", &err), -ERR_NO_SPACE);
    assert_int_equal(term_flush(fine, "the list", &err), 0);
    fclose(full);
    fclose(fine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bar_has_percent_bytes_rate_eta_objects_and_errors),
        cmocka_unit_test(bar_has_no_eta_while_the_listing_runs),
        cmocka_unit_test(bar_fits_each_width_from_60_columns),
        cmocka_unit_test(nothing_to_do_is_not_a_division_by_zero),
        cmocka_unit_test(json_text_is_always_valid_utf8),
        cmocka_unit_test(error_has_the_exit_code_of_the_manual),
        cmocka_unit_test(failed_write_is_reported_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
