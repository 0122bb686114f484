/* SPDX-License-Identifier: Apache-2.0 */
#include "api/condition.h"
#include "api/volume.h"
#include "unit.h"
#include "util/clock.h"
#include <string.h>

#define T0 (INT64_C(1763717400) * 1000000000)
#define T1 (T0 + 5 * (int64_t)NS_PER_SECOND)

static void condition_time_changes_only_with_its_status(void **state)
{
    (void)state;
    struct api_conditions c = {0};
    assert_true(api_condition_set(&c, "Mounted", API_FALSE, "Unstaged", 1, T0, "it is not staged"));
    assert_false(api_condition_set(&c, "Mounted", API_FALSE, "Unstaged", 2, T1, "it is not staged"));
    assert_true(api_condition_set(&c, "Mounted", API_FALSE, "Unstaged", 2, T1, "it is no longer staged"));
    const struct api_condition *one = api_condition_find(&c, "Mounted");
    assert_true(one->since_ns == T0);
    assert_int_equal(one->observed_generation, 2);
    assert_true(api_condition_set(&c, "Mounted", API_TRUE, "Staged", 2, T1, "%s has it", "a pod"));
    assert_true(one->since_ns == T1);
    assert_string_equal(one->message, "a pod has it");
    assert_true(api_condition_is(&c, "Mounted", API_TRUE));
    assert_true(api_condition_says(&c, "Mounted", API_TRUE, "Staged"));
    assert_false(api_condition_says(&c, "Mounted", API_TRUE, "Unstaged"));
    assert_false(api_condition_is(&c, "Hydrated", API_UNKNOWN));
    api_conditions_done(&c);
}

static void written_conditions_are_read_again(void **state)
{
    (void)state;
    struct err err;
    struct api_conditions c = {0}, again = {0};
    api_condition_set(&c, "Provisioned", API_FALSE, "NodeFull", 3, T0, "180 GiB free");
    api_condition_set(&c, "Healthy", API_UNKNOWN, "Starting", 3, T0, "%s", "");
    auto_json j = api_conditions_json(&c);
    auto_mem char *text = json_text(j, 0);
    assert_string_equal(text,
                        "[{\"type\":\"Provisioned\",\"status\":\"False\",\"reason\":\"NodeFull\",\"message\":\"180 "
                        "GiB free\",\"lastTransitionTime\":\"2025-11-21T09:30:00.000Z\",\"observedGeneration\":3}"
                        ",{\"type\":\"Healthy\",\"status\":\"Unknown\",\"reason\":\"Starting\",\"message\":\"\","
                        "\"lastTransitionTime\":\"2025-11-21T09:30:00.000Z\",\"observedGeneration\":3}]");
    assert_int_equal(api_conditions_read(j, &again, &err), 0);
    assert_int_equal(again.count, 2);
    assert_false(api_condition_set(&again, "Provisioned", API_FALSE, "NodeFull", 3, T1, "180 GiB free"));
    api_conditions_done(&c);
    api_conditions_done(&again);
}

static void conditions_beyond_the_limit_are_skipped_and_nameless_ones_refused(void **state)
{
    (void)state;
    struct err err;
    struct api_conditions c = {0};
    auto_json many = json_new_array();
    for (int i = 0; i < 2 * API_CONDITIONS_MAX; i++) {
        json *one = json_new_object();
        json_set_str(one, "type", STR("X"));
        json_set_str(one, "status", STR("True"));
        json_append(many, one);
    }
    assert_int_equal(api_conditions_read(many, &c, &err), 0);
    assert_int_equal(c.count, API_CONDITIONS_MAX);
    api_conditions_done(&c);
    auto_json bad = NULL;
    assert_int_equal(json_parse(STR("[{\"type\":\"X\",\"status\":\"Maybe\"}]"), "it", &bad, &err), 0);
    assert_int_equal(api_conditions_read(bad, &c, &err), -ERR_INVALID);
}

static void conditions_of_others_leave_room(void **state)
{
    (void)state;
    struct err err;
    struct api_conditions c = {0};
    auto_json many = json_new_array();
    for (int i = 0; i < API_CONDITIONS_MAX; i++) {
        char type[] = {'F', (char)('a' + i), '\0'};
        json *one = json_new_object();
        json_set_str(one, "type", i == 0 ? STR(API_HEALTHY) : str_of(type));
        json_set_str(one, "status", STR("True"));
        json_append(many, one);
    }
    assert_int_equal(api_conditions_read(many, &c, &err), 0);
    assert_string_equal(api_condition_find(&c, "Fb")->reason, "");
    assert_true(api_condition_set(&c, API_MOUNTED, API_TRUE, "R", 1, 1, "a"));
    assert_true(api_condition_set(&c, API_EXPORTED, API_FALSE, "R", 1, 1, "b"));
    assert_int_equal(c.count, API_CONDITIONS_MAX);
    assert_true(api_condition_says(&c, API_MOUNTED, API_TRUE, "R"));
    assert_true(api_condition_says(&c, API_EXPORTED, API_FALSE, "R"));
    assert_true(api_condition_is(&c, API_HEALTHY, API_TRUE));
    assert_null(api_condition_find(&c, "Fc"));
    assert_true(api_condition_is(&c, "Fd", API_TRUE));
    api_conditions_done(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(condition_time_changes_only_with_its_status),
        cmocka_unit_test(written_conditions_are_read_again),
        cmocka_unit_test(conditions_of_others_leave_room),
        cmocka_unit_test(conditions_beyond_the_limit_are_skipped_and_nameless_ones_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
