/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/err_kind.h"

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
        cmocka_unit_test(id_of_another_process_has_the_kind_of_its_number),
        cmocka_unit_test(text_without_an_id_has_no_kind),
        cmocka_unit_test(id_is_written_with_four_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
