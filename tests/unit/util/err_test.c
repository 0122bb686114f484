/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/err.h"
#include "util/str.h"
#include <string.h>

static int fails(struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "cannot find '%s'", "x");
}

static void the_code_is_returned_negative(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(fails(&err), -ERR_NOT_FOUND);
    assert_string_equal(err.text, "cannot find 'x'");
}

static void a_wrap_goes_in_front(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(fails(&err), -ERR_NOT_FOUND);
    assert_int_equal(err_wrap(&err, "hydrating '%s'", "v1"), -ERR_NOT_FOUND);
    assert_string_equal(err.text, "hydrating 'v1': cannot find 'x'");
}

static const char *named(const char *text, struct str subject)
{
    static struct err err;
    err_set(&err, ERR_IO, "%s", text);
    err_name(&err, subject);
    return err.text;
}

static void a_sentence_names_its_subject_once(void **state)
{
    (void)state;
    assert_string_equal(named("cannot read it", STR("x/y")), "x/y: cannot read it");
    assert_string_equal(named("cannot read 'x/y'", STR("x/y")), "cannot read 'x/y'");
    assert_string_equal(named("s3://b/p/x/y: 404", STR("x/y")), "s3://b/p/x/y: 404");
    assert_string_equal(named("cannot read it", STR("")), "cannot read it");
}

static void subject_inside_another_word_is_named(void **state)
{
    (void)state;
    assert_string_equal(named("crc32c of data that arrived is 1", STR("a")), "a: crc32c of data that arrived is 1");
    assert_string_equal(named("cannot read 'data'", STR("at")), "at: cannot read 'data'");
    assert_string_equal(named("a\nb: wrong", STR("a\nb")), "a?b: wrong");
}

static void missing_device_is_an_io_error_and_not_a_missing_file(void **state)
{
    (void)state;
    static const int numbers[] = {ENODEV, ENXIO, EIO, ESTALE, EREMOTEIO, ENOMEDIUM, ENOTCONN, ESHUTDOWN};
    for (size_t i = 0; i < countof(numbers); i++)
        assert_int_equal(err_code_of_errno(numbers[i]), ERR_IO);
    assert_int_equal(err_code_of_errno(ENOENT), ERR_NOT_FOUND);
}

static void errno_gives_code_and_text(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(err_sys(&err, EDQUOT, "cannot write 'y'"), -ERR_NO_SPACE);
    assert_string_equal(err.text, "cannot write 'y': Disk quota exceeded");
    assert_int_equal(err.sys, EDQUOT);
}

static void missing_resource_has_an_id_and_advice_that_err_advise_replaces(void **state)
{
    (void)state;
    static const struct {
        int errnum;
        unsigned id;
    } rows[] = {{EMFILE, 1616}, {ENFILE, 1616}, {ENOSPC, 1520}, {EDQUOT, 1520}, {EIO, 1521},
                {EROFS, 1522},  {EACCES, 1523}, {EINTR, 1524},  {EPERM, 1523},  {ENOENT, 0}};
    struct err err;
    for (size_t i = 0; i < countof(rows); i++) {
        err_sys(&err, rows[i].errnum, "cannot write 'y'");
        assert_int_equal(err.id, rows[i].id);
        assert_int_equal(err.advice[0] != '\0', rows[i].id != 0);
    }
    err_sys(&err, ENOSPC, "cannot write 'y'");
    err_advise_text(&err, 1510, "narrow it");
    assert_int_equal(err.id, 1510);
    assert_string_equal(err.advice, "narrow it");
}

static void the_line_has_id_code_and_advice(void **state)
{
    (void)state;
    struct err err;
    char line[ERR_LINE_MAX];
    fails(&err);
    err_advise_text(&err, 1404, "look again");
    assert_string_equal(err_line(&err, line, sizeof line), "cannot find 'x' (CIS1404, NOT_FOUND); look again");
}

static void bytes_that_are_not_printable_utf8_become_question_marks(void **state)
{
    (void)state;
    struct err err;
    err_set(&err, ERR_INVALID, "'%s'", "a\nb\xff\xc3\xbc\x7f-\xe2\x82");
    assert_string_equal(err.text, "'a?b?\xc3\xbc?-?"
                                  "?'");
}

static const char *end_of(const char *text, size_t len)
{
    return text + strlen(text) - len;
}

static void a_long_sentence_keeps_its_beginning_and_its_cause(void **state)
{
    (void)state;
    struct err err;
    char path[4096];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    err_sys(&err, ENOENT, "cannot open '%s'", path);
    assert_int_equal(strlen(err.text), ERR_TEXT_MAX - 1);
    assert_true(str_starts(str_of(err.text), STR("cannot open 'xxx")));
    assert_string_equal(end_of(err.text, 30), "xxx': No such file or directory" + 1);
    assert_non_null(strstr(err.text, "xxx...xxx"));
    err_wrap(&err, "hydrating '%s'", path);
    assert_true(str_starts(str_of(err.text), STR("hydrating 'xxx")));
    assert_string_equal(end_of(err.text, 25), "No such file or directory");
}

static void a_long_subject_that_is_named_is_not_named_again(void **state)
{
    (void)state;
    char path[1000], text[400];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    snprintf(text, sizeof text, "cannot open '%.300s': why", path);
    assert_string_equal(named(text, str_of(path)), text);
}

static void a_long_sentence_is_cut_at_a_character(void **state)
{
    (void)state;
    struct err err;
    char text[2 * ERR_TEXT_MAX + 1] = "";
    for (size_t i = 0; i < ERR_TEXT_MAX; i++)
        memcpy(text + 2 * i, "\xc3\xa9", 3);
    err_set(&err, ERR_INVALID, "xy%s", text);
    assert_int_equal(strlen(err.text), ERR_TEXT_MAX - 1);
    assert_true(str_is_utf8(str_of(err.text)));
    assert_string_equal(end_of(err.text, 2), "\xc3\xa9");
}

static void fail_sets_code_id_and_advice(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(err_fail(&err, ERR_BUSY, CIS_VOLUME_CHANGING, "volume '%s'", "v"), -ERR_BUSY);
    assert_int_equal(err.id, CIS_VOLUME_CHANGING);
    assert_string_equal(err.text, "volume 'v'");
    assert_string_equal(err.advice, "retry");
}

static void id_of_another_process_has_the_kind_of_its_number(void **state)
{
    (void)state;
    assert_int_equal(err_kind_of_text("CIS1403"), ERR_KIND_DENIED);
    assert_int_equal(err_kind_of_text("CIS1901"), ERR_KIND_UNAUTHENTICATED);
    assert_int_equal(err_kind_of_text("CIS1911"), ERR_KIND_UNAUTHENTICATED);
    assert_int_equal(err_kind_of_text("CIS1404"), ERR_KIND_OBJECT_NOT_FOUND);
    assert_int_equal(err_kind_of_text("CIS1405"), ERR_KIND_BUCKET_NOT_FOUND);
    assert_int_equal(err_kind_of_text("CIS1504"), ERR_KIND_LISTED_TWICE);
    assert_int_equal(err_kind_of_text("CIS1611"), ERR_KIND_UNREACHABLE);
    assert_int_equal(err_kind_of_text("CIS1409"), ERR_KIND_CHANGED);
    assert_int_equal(err_kind_of_text("CIS1510"), ERR_KIND_TOO_LARGE);
    assert_int_equal(err_kind_of_text("CIS1422"), ERR_KIND_MISMATCH);
    assert_int_equal(err_kind_of_text("CIS1530"), ERR_KIND_EMPTY);
    assert_int_equal(err_kind_of_text("CIS1905"), ERR_KIND_IDENTITY_GONE);
    assert_int_equal(err_kind_of_text("CIS1906"), ERR_KIND_IDENTITY_GONE);
    assert_int_equal(err_kind_of_text("CIS1902"), ERR_KIND_CALLER_UNKNOWN);
    assert_int_equal(err_kind_of_text("CIS1903"), ERR_KIND_CALLER_DENIED);
    assert_int_equal(err_kind_of_text("CIS1910"), ERR_KIND_THROTTLED);
    assert_int_equal(err_kind_of_text("CIS9999"), ERR_KIND_OTHER);
}

static void text_without_an_id_has_no_kind(void **state)
{
    (void)state;
    assert_int_equal(err_kind_of_text(NULL), ERR_KIND_OTHER);
    assert_int_equal(err_kind_of_text(""), ERR_KIND_OTHER);
    assert_int_equal(err_kind_of_text("1403"), ERR_KIND_OTHER);
    assert_int_equal(err_kind_of_text("CIS1403x"), ERR_KIND_OTHER);
}

static void id_is_written_with_four_digits(void **state)
{
    (void)state;
    char text[ERR_ID_TEXT_MAX];
    assert_string_equal(err_id_text(CIS_ACCESS_DENIED, text), "CIS1403");
    assert_string_equal(err_id_text(0, text), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_code_is_returned_negative),
        cmocka_unit_test(a_wrap_goes_in_front),
        cmocka_unit_test(a_sentence_names_its_subject_once),
        cmocka_unit_test(subject_inside_another_word_is_named),
        cmocka_unit_test(missing_device_is_an_io_error_and_not_a_missing_file),
        cmocka_unit_test(errno_gives_code_and_text),
        cmocka_unit_test(missing_resource_has_an_id_and_advice_that_err_advise_replaces),
        cmocka_unit_test(the_line_has_id_code_and_advice),
        cmocka_unit_test(bytes_that_are_not_printable_utf8_become_question_marks),
        cmocka_unit_test(a_long_sentence_keeps_its_beginning_and_its_cause),
        cmocka_unit_test(a_long_subject_that_is_named_is_not_named_again),
        cmocka_unit_test(a_long_sentence_is_cut_at_a_character),
        cmocka_unit_test(fail_sets_code_id_and_advice),
        cmocka_unit_test(id_of_another_process_has_the_kind_of_its_number),
        cmocka_unit_test(text_without_an_id_has_no_kind),
        cmocka_unit_test(id_is_written_with_four_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
