/* SPDX-License-Identifier: Apache-2.0 */
#include "api/source.h"
#include "unit.h"
#include <stdio.h>
#include <string.h>

static struct api_source *source_of(const char *spec)
{
    struct err err;
    auto_json j = NULL;
    struct api_source *s = NULL;
    char text[2048];
    snprintf(text, sizeof text,
             "{\"metadata\":{\"name\":\"llama\",\"namespace\":\"train\",\"generation\":2},\"spec\":%s}", spec);
    assert_int_equal(json_parse(str_of(text), "it", &j, &err), 0);
    if (api_source_read(j, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

static void source_spec_becomes_a_volume_spec(void **state)
{
    (void)state;
    struct err err = {0};
    auto_spec spec = NULL;
    auto_api_source s =
        source_of("{\"uri\":\"s3://bucket/p/"
                  "\",\"serviceAccountName\":\"trainer\",\"include\":[\"*.bin\"],\"retry\":{\"maxAttempts\":3},"
                  "\"layout\":{\"dirMode\":\"0700\"},\"identity\":{},\"requesterPays\":\"true\",\"export\":{\"uri\":"
                  "\"gs://out/x/\","
                  "\"secretRef\":{\"name\":\"out\"},\"select\":{\"best\":{\"file\":\"m.json\",\"key\":\"loss\"}}}}");
    if (api_source_spec(s, &spec, &err) < 0)
        fail_msg("%s; %s", err.text, err.advice);
    assert_string_equal(spec->source.uri.text, "s3://bucket/p/");
    assert_string_equal(spec->source.service_account, "trainer");
    assert_int_equal(spec->source.include.count, 1);
    assert_int_equal(spec->source.retry.attempts_max, 3);
    assert_int_equal(spec->source.layout.dir_mode, 0700);
    assert_string_equal(spec->source.requester_pays, "true");
    assert_string_equal(spec->export.secret_name, "out");
    assert_string_equal(spec->export.best_key, "loss");
}

static void unsupported_field_is_reported(void **state)
{
    (void)state;
    static const struct {
        const char *source, *name;
        unsigned id;
    } later[] = {
        {"{\"uri\":\"s3://bucket/\",\"maxAge\":\"1h\"}", "maxAge", CIS_PARAMETER_UNKNOWN},
        {"{\"uri\":\"s3://bucket/\",\"identity\":{\"method\":\"kiam\"}}", "identity.method", CIS_PARAMETER_INVALID},
    };
    for (size_t i = 0; i < countof(later); i++) {
        struct err err = {0};
        auto_spec spec = NULL;
        auto_api_source s = source_of(later[i].source);
        assert_int_equal(api_source_spec(s, &spec, &err), -ERR_INVALID);
        assert_int_equal(err.id, later[i].id);
        assert_non_null(strstr(err.text, later[i].name));
    }
}

static void unknown_field_or_wrong_type_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        unsigned id;
    } bad[] = {
        {"{\"uri\":\"s3://bucket/\",\"colour\":\"red\"}", 2001},
        {"{\"uri\":\"s3://bucket/\",\"hydration\":\"eager\"}", 2001},
        {"{\"uri\":\"http://b/\"}", 2002},
        {"{\"uri\":\"s3://My_Bucket/\"}", 2002},
        {"{\"export\":{\"uri\":\"s3://My_Bucket/\"}}", 2002},
        {"{\"sources\":[{\"uri\":\"s3://bucket/\"},{\"uri\":\"s3://My_Bucket/\"}]}", 2002},
        {"{\"uri\":\"s3://bucket/\",\"include\":\"*\"}", 2002},
        {"{\"uri\":\"s3://bucket/\",\"retry\":3}", 2001},
    };
    for (size_t i = 0; i < countof(bad); i++) {
        struct err err = {0};
        auto_spec spec = NULL;
        auto_api_source s = source_of(bad[i].spec);
        assert_int_equal(api_source_spec(s, &spec, &err), -ERR_INVALID);
        if (err.id != bad[i].id)
            fail_msg("%s: CIS%u %s", bad[i].spec, err.id, err.text);
    }
}

static void source_status_has_the_columns(void **state)
{
    (void)state;
    auto_api_source s = source_of("{\"uri\":\"s3://bucket/\"}");
    s->status.phase = API_SOURCE_READY;
    s->status.listing.known = true;
    s->status.listing.objects = 191;
    s->status.listing.bytes = UINT64_C(140) << 30;
    s->status.suggested_bytes = (UINT64_C(148) << 30) + 1;
    s->status.volumes.ready = 1;
    s->status.volumes.failed = 2;
    auto_json j = api_source_status_json(s);
    auto_mem char *text = json_text(j, 0);
    assert_non_null(strstr(text, "\"phase\":\"Ready\""));
    assert_non_null(strstr(text, "\"suggestedSize\":\"149Gi\""));
    assert_non_null(strstr(text, "\"size\":\"140 GiB\""));
    assert_non_null(strstr(text, "\"volumes\":\"1/3\""));
    assert_null(json_at(j, "spec"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(source_spec_becomes_a_volume_spec),
        cmocka_unit_test(unsupported_field_is_reported),
        cmocka_unit_test(unknown_field_or_wrong_type_is_refused),
        cmocka_unit_test(source_status_has_the_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
