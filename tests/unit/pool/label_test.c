/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/label.h"
#include "unit.h"

static void labels_are_equal_if_the_kernel_takes_them_for_one(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool equal;
    } cases[] = {
        {"u:r:t:s0:c27,c4", "u:r:t:s0:c4,c27", true},
        {"u:r:t:s0:c3,c1,c2", "u:r:t:s0:c1.c3", true},
        {"u:r:t:s0:c4,c4", "u:r:t:s0:c4", true},
        {"u:r:t:s0-s0", "u:r:t:s0", true},
        {"u:r:t:s0:c2,c1-s0:c1,c2", "u:r:t:s0:c1,c2", true},
        {"u:r:t:s0-s0:c0.c1023", "u:r:t:s0-s0:c0.c511,c512.c1023", true},
        {"u:r:t", "u:r:t", true},
        {"none", "none", true},
        {"u:r:t:s0:c4,c27", "u:r:t:s0:c4,c28", false},
        {"u:r:t:s0:c4,c27", "u:r:t:s0:c4", false},
        {"u:r:t:s0", "u:r:t:s0-s0:c0.c1023", false},
        {"u:r:t:s0:c1", "u:r:t:s1:c1", false},
        {"u:r:t:s0", "u:r:other:s0", false},
        {"u:r:t:s0", "u:r:t", false},
        {"u:r:t:s0", "none", false},
        /* Not the form of any policy: equal only as texts. */
        {"u:r:t:SystemHigh", "u:r:t:SystemHigh", true},
        {"u:r:t:s0:c1024", "u:r:t:s0:c1024", true},
        {"u:r:t:s0:c1024,c1", "u:r:t:s0:c1,c1024", false},
        {"u:r:t:s0:c1,", "u:r:t:s0:c1", false},
        {"u:r:t:s0:c2.c", "u:r:t:s0:c2", false},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        if (label_eq(str_of(cases[i].a), str_of(cases[i].b)) != cases[i].equal ||
            label_eq(str_of(cases[i].b), str_of(cases[i].a)) != cases[i].equal)
            fail_msg("%s and %s", cases[i].a, cases[i].b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_are_equal_if_the_kernel_takes_them_for_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
