/* SPDX-License-Identifier: Apache-2.0 */
#include "claim.h"
#include "unit.h"
#include <stdio.h>
#include <string.h>

static json *parse(const char *text)
{
    struct err err;
    json *j;
    if (json_parse(str_of(text), "it", &j, &err) < 0)
        fail_msg("%s", err.text);
    return j;
}

static json *claim_of(const char *annotations, const char *spec)
{
    char text[1024];
    snprintf(
        text, sizeof text,
        "{\"metadata\":{\"namespace\":\"train\",\"name\":\"weights\",\"uid\":\"u-1\",\"annotations\":%s},\"spec\":%s}",
        annotations, spec);
    return parse(text);
}

static struct claim_words words_of(const json *claim)
{
    struct err err;
    struct claim_words w;
    if (claim_words_read(claim, &w, &err) < 0)
        fail_msg("%s", err.text);
    return w;
}

static void a_data_source_names_the_source_and_wins_over_the_annotation(void **state)
{
    (void)state;
    auto_json j =
        claim_of("{\"cistern.io/source\":\"other\"}",
                 "{\"dataSourceRef\":{\"apiGroup\":\"cistern.io\",\"kind\":\"BucketSource\",\"name\":\"llama\"}}");
    struct claim_words w = words_of(j);
    assert_true(str_eq(w.source, STR("llama")));
    assert_true(str_eq(w.source_namespace, STR("train")));
    assert_true(w.is_populated);
    auto_json far =
        claim_of("{}", "{\"dataSourceRef\":{\"apiGroup\":\"cistern.io\",\"kind\":\"BucketSource\",\"name\":\"llama\","
                       "\"namespace\":\"models\"}}");
    assert_true(str_eq(words_of(far).source_namespace, STR("models")));
}

static void an_export_policy_does_not_go_with_a_source_of_another_namespace(void **state)
{
    (void)state;
    struct err err;
    struct claim_words w;
    auto_json j =
        claim_of("{\"cistern.io/export-policy\":\"out\"}",
                 "{\"dataSourceRef\":{\"apiGroup\":\"cistern.io\",\"kind\":\"BucketSource\",\"name\":\"llama\","
                 "\"namespace\":\"models\"}}");
    assert_int_equal(claim_words_read(j, &w, &err), -ERR_DENIED); /* its account would be looked for in 'models' */
    assert_int_equal(err.id, 5202);
    json_set_str(j, "spec.dataSourceRef.namespace", STR("train"));
    assert_int_equal(claim_words_read(j, &w, &err), 0);
}

static void a_data_source_of_another_populator_is_ignored(void **state)
{
    (void)state;
    auto_json j = claim_of(
        "{}",
        "{\"dataSourceRef\":{\"apiGroup\":\"snapshot.storage.k8s.io\",\"kind\":\"VolumeSnapshot\",\"name\":\"s\"}}");
    struct claim_words w = words_of(j);
    assert_int_equal(w.source.len, 0);
    assert_false(w.is_populated);
}

static const char *hydration_after(const char *class, const char *annotations, const char *spec, struct api_volume *v)
{
    struct err err = {0};
    auto_json j = claim_of(annotations, spec);
    struct claim_words w = words_of(j);
    if (class)
        assert_int_equal(api_volume_set_parameter(v, STR("hydration"), str_of(class), &err), 0);
    if (claim_words_apply(&w, v, &err) < 0)
        fail_msg("%s", err.text);
    return api_volume_parameter(v, "hydration");
}

static void a_source_by_annotation_opens_the_gate_behind_the_binding(void **state)
{
    (void)state;
    static const char ref[] =
        "{\"dataSourceRef\":{\"apiGroup\":\"cistern.io\",\"kind\":\"BucketSource\",\"name\":\"llama\"}}";
    auto_api_volume a = api_volume_new();
    auto_api_volume b = api_volume_new();
    auto_api_volume c = api_volume_new();
    auto_api_volume d = api_volume_new();
    assert_string_equal(hydration_after(NULL, "{\"cistern.io/source\":\"llama\"}", "{}", a), "gate");
    assert_string_equal(hydration_after("eager", "{\"cistern.io/source\":\"llama\"}", "{}", b), "gate");
    assert_string_equal(hydration_after("none", "{\"cistern.io/source\":\"llama\"}", "{}", c), "none");
    assert_null(hydration_after(NULL, "{}", ref, d));
}

static void an_annotation_wins_over_the_class_and_is_checked_like_it(void **state)
{
    (void)state;
    struct err err = {0};
    auto_api_volume v = api_volume_new();
    assert_string_equal(hydration_after("eager", "{\"cistern.io/hydration\":\"gate\"}", "{}", v), "gate");
    auto_json bad = claim_of("{\"cistern.io/on-data-loss\":\"pray\"}", "{}");
    struct claim_words w = words_of(bad);
    assert_int_equal(claim_words_apply(&w, v, &err), -ERR_INVALID);
    assert_non_null(strstr(err.text, "annotation cistern.io/on-data-loss"));
    auto_json later = claim_of("{\"cistern.io/hydration\":\"lazy\"}", "{}");
    w = words_of(later);
    assert_int_equal(claim_words_apply(&w, v, &err), -ERR_INVALID);
    assert_int_equal(err.id, 2002);
}

static void an_export_policy_replaces_the_export_and_gives_a_blank_volume_nothing_to_fetch(void **state)
{
    (void)state;
    struct err err = {0};
    auto_json source = parse("{\"uri\":\"s3://in/\",\"export\":{\"uri\":\"s3://own/\"}}");
    auto_json policy =
        parse("{\"uri\":\"s3://xxx/\",\"include\":[\"*\"],\"region\":\"r\",\"export\":{\"uri\":\"s3://out/\"}}");
    auto_json none = parse("{\"uri\":\"s3://xxx/\"}");
    json *merged;
    assert_int_equal(claim_source_merge(source, policy, &merged, &err), 0);
    auto_mem char *both = json_text(merged, 0);
    json_free(merged);
    assert_string_equal(both, "{\"uri\":\"s3://in/\",\"export\":{\"uri\":\"s3://out/\"}}");
    assert_int_equal(claim_source_merge(NULL, policy, &merged, &err), 0);
    auto_mem char *blank = json_text(merged, 0);
    json_free(merged);
    assert_string_equal(blank, "{\"region\":\"r\",\"export\":{\"uri\":\"s3://out/\"}}");
    assert_int_equal(claim_source_merge(NULL, NULL, &merged, &err), 0);
    assert_null(merged);
    assert_int_equal(claim_source_merge(source, none, &merged, &err), -ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_data_source_names_the_source_and_wins_over_the_annotation),
        cmocka_unit_test(an_export_policy_does_not_go_with_a_source_of_another_namespace),
        cmocka_unit_test(a_data_source_of_another_populator_is_ignored),
        cmocka_unit_test(a_source_by_annotation_opens_the_gate_behind_the_binding),
        cmocka_unit_test(an_annotation_wins_over_the_class_and_is_checked_like_it),
        cmocka_unit_test(an_export_policy_replaces_the_export_and_gives_a_blank_volume_nothing_to_fetch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
