/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "unit.h"

#define BLANK .is_blank = true
#define MOUNTED .is_mounted = true
#define REQUIRED .require_mount = true
#define EPHEMERAL .is_ephemeral = true
#define ASKED .is_asked = true
#define EARLIER .has_earlier = true
#define GIVEN_UP .is_given_up = true

static void an_identity_is_made_only_where_nothing_names_an_earlier_pool(void **state)
{
    (void)state;
    static const struct {
        struct identity_facts facts;
        enum identity_may may;
    } cases[] = {
        {{BLANK, ASKED}, IDENTITY_MAKE},
        {{BLANK, ASKED, MOUNTED, REQUIRED}, IDENTITY_MAKE},
        {{ASKED}, IDENTITY_NOT_BLANK},
        {{ASKED, MOUNTED, EPHEMERAL}, IDENTITY_NOT_BLANK},
        {{ASKED, EARLIER, GIVEN_UP}, IDENTITY_NOT_BLANK},
        {{BLANK, ASKED, REQUIRED}, IDENTITY_NOT_MOUNTED},
        {{BLANK, ASKED, EPHEMERAL}, IDENTITY_NOT_MOUNTED},
        {{BLANK, ASKED, REQUIRED, EARLIER, GIVEN_UP}, IDENTITY_NOT_MOUNTED},
        {{BLANK}, IDENTITY_NOT_ASKED},
        {{BLANK, MOUNTED, EPHEMERAL}, IDENTITY_NOT_ASKED},
        {{BLANK, MOUNTED, EARLIER, GIVEN_UP}, IDENTITY_NOT_ASKED},
        {{BLANK, ASKED, EARLIER}, IDENTITY_EARLIER},
        {{BLANK, ASKED, MOUNTED, REQUIRED, EARLIER}, IDENTITY_EARLIER},
        {{BLANK, ASKED, EARLIER, GIVEN_UP}, IDENTITY_MAKE},
        {{BLANK, ASKED, MOUNTED, EPHEMERAL, EARLIER}, IDENTITY_MAKE},
        {{BLANK, ASKED, MOUNTED, REQUIRED, EARLIER, GIVEN_UP}, IDENTITY_MAKE},
    };
    for (size_t i = 0; i < countof(cases); i++)
        assert_int_equal(identity_may_be_made(&cases[i].facts), cases[i].may);
}

static void no_set_of_facts_makes_an_identity_over_an_earlier_pool_or_over_content(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 1 << 7; bits++) {
        struct identity_facts f = {bits & 1, bits & 2, bits & 4, bits & 8, bits & 16, bits & 32, bits & 64};
        if (identity_may_be_made(&f) != IDENTITY_MAKE)
            continue;
        assert_true(f.is_blank && f.is_asked);
        assert_true(!f.require_mount || f.is_mounted);
        assert_true(!f.has_earlier || f.is_given_up || (f.is_ephemeral && f.is_mounted));
    }
}

static void a_pool_knows_whose_place_it_has_taken_and_by_whose_word(void **state)
{
    (void)state;
    struct pool_identity i;
    struct err err;
    identity_make(&i);
    assert_int_equal(identity_add_earlier(&i, STR("0123456789ab"), false, &err), 0);
    assert_true(identity_replaces(&i, STR("0123456789ab"), false));
    assert_false(identity_replaces(&i, STR("0123456789ab"), true));
    assert_false(identity_replaces(&i, STR("0123456789ac"), false));
    assert_int_equal(identity_add_earlier(&i, STR("0123456789ab"), true, &err), 0);
    assert_true(identity_replaces(&i, STR("0123456789ab"), true));
    assert_int_equal(i.earlier_count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_identity_is_made_only_where_nothing_names_an_earlier_pool),
        cmocka_unit_test(no_set_of_facts_makes_an_identity_over_an_earlier_pool_or_over_content),
        cmocka_unit_test(a_pool_knows_whose_place_it_has_taken_and_by_whose_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
