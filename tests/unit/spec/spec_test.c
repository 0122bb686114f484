/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/spec.h"
#include "unit.h"
#include "util/clock.h"
#include <stdio.h>

static int set(struct spec *s, const char *key, const char *value, struct err *err)
{
    return spec_set(s, str_of(key), str_of(value), err);
}

static void must_set(struct spec *s, const char *key, const char *value)
{
    struct err err = {0};
    if (set(s, key, value, &err) < 0)
        fail_msg("%s=%s: %s; %s", key, value, err.text, err.advice);
}

static struct spec *full_spec(void)
{
    struct spec *s = spec_new();
    snprintf(s->id.text, sizeof s->id.text, "v1-0123456789ab-ba9876543210");
    s->name = str_dup(STR("pvc-1"));
    s->capacity_bytes = 10 << 20;
    s->created_ns = INT64_C(1763717400123) * 1000000;
    s->backend = BACKEND_LOOP;
    must_set(s, "hydration", "gate");
    must_set(s, "bandwidth", "1.5Gi");
    must_set(s, "uri", "s3://bucket/p\xc3\xa9/");
    must_set(s, "include", "*.bin, sub/**");
    must_set(s, "exclude", "[\"a,b\", \"[x]y\"]");
    must_set(s, "pathStyle", "true");
    must_set(s, "requesterPays", "my-project");
    must_set(s, "retry.maxElapsed", "1h");
    must_set(s, "layout.dirMode", "0700");
    must_set(s, "layout.subPath", "in/here");
    must_set(s, "export.uri", "gs://out/x/");
    must_set(s, "export.trigger", "OnRelease,Manual");
    must_set(s, "export.select.best.file", "metrics.json");
    must_set(s, "export.select.best.key", "eval_loss");
    must_set(s, "export.select.best.order", "max");
    must_set(s, "export.settle", "1500ms");
    return s;
}

static void defaults_are_those_of_the_documents(void **state)
{
    (void)state;
    auto_spec s = spec_new();
    assert_string_equal(s->params.pool, "default");
    assert_int_equal(s->params.concurrency, 64);
    assert_int_equal(s->params.hydration, HYDRATION_EAGER);
    assert_int_equal(s->source.retry.attempts_max, 8);
    assert_int_equal(s->source.retry.elapsed_max_ns, 1800 * NS_PER_SECOND);
    assert_int_equal(s->source.layout.dir_mode, 0755);
    assert_true(s->source.size_check);
    assert_int_equal(s->export.triggers, TRIGGER_ON_UNPUBLISH | TRIGGER_ON_RELEASE);
    assert_int_equal(s->export.settle_ns, 30 * NS_PER_SECOND);
    assert_int_equal(spec_source_count(s), 0);
}

static void values_are_read_from_a_string_map(void **state)
{
    (void)state;
    auto_spec s = full_spec();
    struct err err;
    assert_int_equal(spec_check(s, &err), 0);
    assert_int_equal(s->params.hydration, HYDRATION_GATE);
    assert_int_equal(s->params.bandwidth, 3 << 29);
    assert_int_equal(s->source.include.count, 2);
    assert_string_equal(s->source.include.items[1], "sub/**");
    assert_string_equal(s->source.exclude.items[0], "a,b");
    assert_int_equal(s->source.layout.dir_mode, 0700);
    assert_int_equal(s->export.triggers, TRIGGER_ON_RELEASE | TRIGGER_MANUAL);
    assert_int_equal(s->export.settle_ns, 1500 * NS_PER_MS);
    struct spec_part part = spec_source_at(s, 0);
    assert_string_equal(part.uri.text, "s3://bucket/p\xc3\xa9/");
    assert_int_equal(part.include.count, 2);
}

static void several_sources_come_as_json(void **state)
{
    (void)state;
    auto_spec s = spec_new();
    struct err err;
    must_set(s, "sources",
             "[{\"uri\":\"s3://aaa/\",\"subPath\":\"x\",\"include\":[\"*.a\"]},{\"uri\":\"gs://bucket/\"}]");
    assert_int_equal(spec_check(s, &err), 0);
    assert_int_equal(spec_source_count(s), 2);
    assert_string_equal(spec_source_at(s, 0).sub_path, "x");
    assert_string_equal(spec_source_at(s, 0).include.items[0], "*.a");
    assert_string_equal(spec_source_at(s, 1).uri.text, "gs://bucket/");
    assert_null(spec_source_at(s, 1).sub_path);
    must_set(s, "uri", "s3://ccc/");
    assert_int_equal(spec_check(s, &err), -ERR_INVALID);
}

static void export_uses_the_server_of_a_source_of_its_scheme_only(void **state)
{
    (void)state;
    auto_spec s = spec_new();
    must_set(s, "endpoint", "https://minio.example:9000");
    must_set(s, "region", "eu-west-1");
    must_set(s, "export.uri", "gs://out/");
    assert_string_equal(spec_export_server(s).endpoint, "https://minio.example:9000");
    must_set(s, "uri", "s3://bucket/");
    assert_null(spec_export_server(s).endpoint);
    assert_null(spec_export_server(s).region);
    must_set(s, "export.uri", "s3://out/");
    must_set(s, "export.region", "us-east-1");
    assert_string_equal(spec_export_server(s).endpoint, "https://minio.example:9000");
    assert_string_equal(spec_export_server(s).region, "us-east-1");
}

static void choice_of_a_text_is_its_enum_or_the_default(void **state)
{
    (void)state;
    assert_int_equal(spec_choice("hydration", STR("none")), HYDRATION_NONE);
    assert_int_equal(spec_choice("onDataLoss", STR("empty")), DATA_LOSS_EMPTY);
    assert_int_equal(spec_choice("access", STR_NULL), ACCESS_AUTO);
    assert_int_equal(spec_choice("hydration", STR("lazy")), HYDRATION_EAGER);
}

static void an_unknown_name_is_answered_with_the_nearest(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"hydratoin", "hydration"},
        {"Concurrency", "concurrency"},
        {"retry.maxAttempt", "retry.maxAttempts"},
        {"export.onfailure", "export.onFailure"},
        {"band width", "bandwidth"},
    };
    auto_spec s = spec_new();
    for (size_t i = 0; i < countof(pairs); i++) {
        struct err err = {0};
        assert_int_equal(set(s, pairs[i][0], "x", &err), -ERR_INVALID);
        assert_int_equal(err.id, 2001);
        assert_non_null(strstr(err.text, pairs[i][0]));
        char quoted[80];
        snprintf(quoted, sizeof quoted, "'%s'", pairs[i][1]);
        if (!strstr(err.text, quoted))
            fail_msg("%s: %s", pairs[i][0], err.text);
    }
    struct err far = {0};
    assert_int_equal(set(s, "type", "x", &far), -ERR_INVALID);
    assert_string_equal(far.text, "unknown parameter 'type'");
    char long_name[4096];
    memset(long_name, 'x', sizeof long_name);
    struct err err = {0};
    assert_int_equal(spec_set(s, (struct str){long_name, sizeof long_name}, STR("1"), &err), -ERR_INVALID);
    assert_int_equal(spec_set(s, STR_NULL, STR("1"), &err), -ERR_INVALID);
}

static void a_bad_value_changes_nothing_and_is_named(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"hydration", "Eager"},
        {"concurrency", "0"},
        {"concurrency", "513"},
        {"concurrency", "64 "},
        {"bandwidth", "-1"},
        {"bandwidth", "16E"},
        {"pathStyle", "yes"},
        {"layout.dirMode", "0999"},
        {"layout.dirMode", "4755"},
        {"layout.dirMode", ""},
        {"layout.subPath", "../x"},
        {"layout.subPath", "/x"},
        {"retry.maxElapsed", "soon"},
        {"include", "a,,b"},
        {"include", "a,"},
        {"include", "[\"a\""},
        {"include", "[1]"},
        {"include", "a[b"},
        {"export.trigger", "OnRelease,Never"},
        {"export.trigger", "OnClose"},
        {"hydration", "lazy"},
        {"consistency", "latest"},
        {"onChange", "relist"},
        {"sources", "[{}]"},
        {"sources", "{}"},
        {"sources", "[{\"uri\":1}]"},
        {"sources", "[{\"uri\":\"s3://aaa/\",\"x\":1}]"},
        {"sources", "[{\"uri\":\"s3://aaa/\",\"subPath\":\"..\"}]"},
        {"uri", "s3://aaa/\x01"},
        {"uri", "s3://aaa/\xff"},
    };
    auto_spec s = spec_new();
    auto_spec untouched = spec_new();
    for (size_t i = 0; i < countof(bad); i++) {
        struct err err = {0};
        if (set(s, bad[i][0], bad[i][1], &err) != -ERR_INVALID)
            fail_msg("%s=%s was taken", bad[i][0], bad[i][1]);
        assert_int_equal(err.id, 2002);
        assert_non_null(strstr(err.text, bad[i][0]));
        assert_null(spec_difference(s, untouched));
    }
}

static void value_that_needs_a_cluster_is_refused_without_one(void **state)
{
    (void)state;
    static const char *const later[][2] = {
        {"onDataLoss", "rehydrate"},        {"onDataLoss", "empty"},     {"exportSecret", "x"},
        {"serviceAccountName", "x"},        {"secretRef.name", "x"},     {"identity.method", "gke"},
        {"identity.method", "wif"},         {"identity.method", "irsa"}, {"identity.method", "podIdentity"},
        {"identity.method", "secret"},      {"identity.audience", "x"},  {"identity.provider", "x"},
        {"identity.method", "metadata"},    {"suspend", "true"},         {"export.secretRef.name", "x"},
        {"export.serviceAccountName", "x"},
    };
    for (size_t i = 0; i < countof(later); i++) {
        auto_spec s = spec_new();
        struct err err = {0};
        must_set(s, later[i][0], later[i][1]);
        assert_int_equal(spec_check(s, &err), 0); /* an existing volume can be read */
        if (spec_check_served(s, &err) != -ERR_INVALID)
            fail_msg("%s=%s was taken", later[i][0], later[i][1]);
        assert_int_equal(err.id, 2003);
        assert_non_null(strstr(err.text, later[i][0]));
        assert_true(err.advice[0]);
    }
}

/* Every combination by which a volume with somewhere to export to could be deleted without an export. */
static void policy_by_which_nothing_would_be_exported_is_refused_where_a_volume_is_made(void **state)
{
    (void)state;
    static const struct {
        const char *pairs[3][2];
        const char *named;
    } never[] = {
        {{{"export.trigger", ""}}, "export.trigger"},
        {{{"export.trigger", "[]"}}, "export.trigger"},
        {{{"export.trigger", "Manual"}}, "export.trigger"},
        {{{"export.include", "/ckpt/**"}}, "/ckpt/**"},
        {{{"export.include", "ckpt/"}}, "ckpt/"},
        {{{"export.include", "ckpt//a"}}, "ckpt//a"},
        {{{"export.include", "./ckpt/**"}}, "./ckpt/**"},
        {{{"export.include", "../**"}}, "../**"},
        {{{"export.include", "x[/]"}}, "x[/]"},
        {{{"export.include", "x[z-a]"}}, "x[z-a]"},
        {{{"export.include", "**/*.pt,/logs/*"}}, "/logs/*"},
        {{{"export.exclude", "*"}}, "export.exclude"},
        {{{"export.exclude", "**"}}, "export.exclude"},
        {{{"export.exclude", "**/*"}}, "export.exclude"},
        {{{"export.exclude", "*.tmp,?*"}}, "export.exclude"},
        {{{"export.include", "*.pt"}, {"export.exclude", "*.pt"}}, "export.exclude"},
        {{{"export.include", "a/**,b/*"}, {"export.exclude", "a/**,b/**"}}, "export.exclude"},
        {{{"export.include", "step-[0-9]"}, {"export.exclude", "step-?"}}, "export.exclude"},
        {{{"export.onFailure", "Discard"}, {"export.deadline", "59s"}}, "deadline"},
        {{{"export.onFailure", "Discard"}, {"export.deadline", "1ms"}}, "deadline"},
    };
    for (size_t i = 0; i < countof(never); i++) {
        auto_spec s = spec_new();
        struct err err = {0};
        must_set(s, "export.uri", "s3://out/x/");
        for (size_t k = 0; k < countof(never[i].pairs) && never[i].pairs[k][0]; k++)
            must_set(s, never[i].pairs[k][0], never[i].pairs[k][1]);
        if (spec_check_served(s, &err) != -ERR_INVALID)
            fail_msg("%s=%s was taken", never[i].pairs[0][0], never[i].pairs[0][1]);
        assert_int_equal(err.id, 2009);
        if (!strstr(err.text, never[i].named))
            fail_msg("'%s' does not name '%s'", err.text, never[i].named);
        assert_true(err.advice[0]);
        assert_int_equal(spec_check(s, &err), 0); /* an existing volume can be read */
    }
    auto_spec s = spec_new();
    struct err err = {0};
    assert_int_equal(set(s, "export.uri", "", &err), -ERR_INVALID);
}

static void policy_by_which_something_is_exported_is_taken(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"export.trigger", "OnRelease"},
        {"export.trigger", "OnUnpublish"},
        {"export.trigger", "OnRelease,Manual"},
        {"export.include", "**"},
        {"export.include", "*.pt"},
        {"export.include", "a/**/b/[!x]?.pt"},
        {"export.include", "x[\xC3\xA9]"},
        {"export.include", "\\*"},
        {"export.include", "**/{a}"},
        {"export.exclude", "*.tmp"},
        {"export.exclude", "[\"[!a-z]*\"]"},
        {"export.exclude", "*/**"},
        {"export.exclude", "?"},
        {"export.exclude", "**/tmp/**,.*,*~"},
        {"export.select.latest", "0"},
        {"export.select.every", "4294967295"},
        {"export.conflict", "overwrite"},
        {"export.conflict", "version"},
        {"export.onFailure", "Discard"},
        {"export.deadline", "1s"},
        {"export.deadline", "0"},
        {"export.settle", "1h"},
    };
    for (size_t i = 0; i < countof(good); i++) {
        auto_spec s = spec_new();
        struct err err = {0};
        must_set(s, "export.uri", "s3://out/x/");
        must_set(s, good[i][0], good[i][1]);
        if (spec_check_served(s, &err) < 0)
            fail_msg("%s=%s: %s", good[i][0], good[i][1], err.text);
    }
}

static void a_cluster_serves_identities_and_more(void **state)
{
    (void)state;
    static const char *const served[][2] = {
        {"serviceAccountName", "x"}, {"secretRef.name", "x"},
        {"identity.method", "irsa"}, {"exportSecret", "x"},
        {"onDataLoss", "rehydrate"}, {"export.secretRef.name", "x"},
        {"identity.audience", "x"},  {"export.serviceAccountName", "x"},
    };
    auto_spec s = spec_new();
    struct err err = {0};
    s->in_cluster = true;
    for (size_t i = 0; i < countof(served); i++)
        must_set(s, served[i][0], served[i][1]);
    assert_int_equal(spec_check_served(s, &err), 0);
    assert_int_equal(spec_modify(s, STR("onDataLoss"), STR("empty"), &err), 0);
    assert_int_equal(set(s, "identity.method", "kiam", &err), -ERR_INVALID);
    assert_non_null(strstr(err.text, "expected one of auto gke wif irsa podIdentity metadata secret anonymous"));
}

static void defaults_and_supported_values_are_accepted(void **state)
{
    (void)state;
    struct err err = {0};
    auto_spec unsaid = spec_new();
    auto_spec full = full_spec();
    assert_int_equal(spec_check_served(unsaid, &err), 0);
    must_set(full, "identity.method", "anonymous");
    must_set(full, "suspend", "false");
    if (spec_check_served(full, &err) < 0)
        fail_msg("%s; %s", err.text, err.advice);
    must_set(full, "onDataLoss", "empty");
    assert_int_equal(spec_check_served(full, &err), -ERR_INVALID);
    assert_string_equal(err.text, "'onDataLoss: empty' is not supported here: expected one of fail");
}

static void sidecars_keys_are_ignored_but_for_a_file_system(void **state)
{
    (void)state;
    auto_spec s = spec_new();
    auto_spec untouched = spec_new();
    struct err err;
    assert_int_equal(set(s, "csi.storage.k8s.io/pvc/name", "x", &err), 0);
    assert_int_equal(set(s, "csi.storage.k8s.io/fstype", "", &err), 0);
    assert_null(spec_difference(s, untouched));
    assert_int_equal(set(s, "csi.storage.k8s.io/fstype", "ext4", &err), -ERR_INVALID);
}

static void contradictions_between_keys_are_refused(void **state)
{
    (void)state;
    static const char *const bad[][4] = {
        {"minVolumeSize", "2", "maxVolumeSize", "1"},
        {"uri", "file:///", "region", "x"},
        {"uri", "file:///d/", "layout.stripPrefix", "false"},
        {"export.marker", "_SUCCESS", "region", "x"},
        {"export.uri", "s3://bucket/", "export.select.best.key", "loss"},
        {"retry.backoffBase", "2s", "retry.backoffCap", "1s"},
        {"sources", "[{\"uri\":\"s3://aaa/\"}]", "include", "*"},
        {"pool", "", "region", "x"},
        {"priority", "a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a", "region", "x"},
    };
    auto_spec marked = full_spec();
    struct err none;
    must_set(marked, "export.marker", "_DONE");
    assert_int_equal(spec_check(marked, &none), -ERR_INVALID);
    must_set(marked, "export.select.group", "directory");
    assert_int_equal(spec_check(marked, &none), 0);
    for (size_t i = 0; i < countof(bad); i++) {
        auto_spec s = spec_new();
        struct err err = {0};
        must_set(s, bad[i][0], bad[i][1]);
        must_set(s, bad[i][2], bad[i][3]);
        if (spec_check(s, &err) != -ERR_INVALID)
            fail_msg("%s=%s with %s=%s was taken", bad[i][0], bad[i][1], bad[i][2], bad[i][3]);
    }
}

static void only_what_may_change_changes(void **state)
{
    (void)state;
    auto_spec s = spec_new();
    struct err err;
    assert_int_equal(spec_modify(s, STR("concurrency"), STR("8"), &err), 0);
    assert_int_equal(s->params.concurrency, 8);
    assert_int_equal(spec_modify(s, STR("hydration"), STR("eager"), &err), 0);
    assert_int_equal(spec_modify(s, STR("hydration"), STR("lazy"), &err), -ERR_INVALID);
    assert_int_equal(err.id, CIS_PARAMETER_INVALID);
    assert_int_equal(spec_modify(s, STR("hydration"), STR("none"), &err), -ERR_INVALID);
    assert_int_equal(err.id, 2008);
    assert_int_equal(spec_modify(s, STR("hydration"), STR("eager"), &err), 0);
    assert_int_equal(s->params.hydration, HYDRATION_EAGER);
    assert_int_equal(spec_modify(s, STR("onDataLoss"), STR("empty"), &err), -ERR_INVALID);
    assert_int_equal(err.id, 2003);
    assert_int_equal(s->params.on_data_loss, DATA_LOSS_FAIL);
    assert_int_equal(spec_modify(s, STR("uri"), STR("s3://xxx/"), &err), -ERR_INVALID);
    assert_int_equal(spec_modify(s, STR("concurency"), STR("8"), &err), -ERR_INVALID);
    assert_int_equal(err.id, 2001);
}

static void the_first_difference_is_named(void **state)
{
    (void)state;
    auto_spec a = full_spec();
    auto_spec b = full_spec();
    assert_null(spec_difference(a, b));
    must_set(b, "export.marker", "_DONE");
    assert_string_equal(spec_difference(a, b), "export.marker");
    must_set(b, "include", "*.bin");
    assert_string_equal(spec_difference(a, b), "include");
}

static void json_gives_back_what_it_was_given(void **state)
{
    (void)state;
    auto_spec a = full_spec();
    auto_spec b = NULL;
    struct err err = {0};
    auto_mem char *text = spec_to_json(a);
    if (spec_from_json(str_of(text), "volume.json", &b, &err) < 0)
        fail_msg("%s", err.text);
    assert_null(spec_difference(a, b));
    assert_string_equal(a->id.text, b->id.text);
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->capacity_bytes, b->capacity_bytes);
    assert_int_equal(a->created_ns, b->created_ns);
    assert_int_equal(a->backend, b->backend);
    auto_mem char *again = spec_to_json(b);
    assert_string_equal(text, again);
}

/* Earlier versions wrote these fields into every volume.json, with their only value. */
static void volume_json_with_retired_fields_is_read(void **state)
{
    (void)state;
    struct err err = {0};
    auto_spec s = full_spec();
    auto_spec back = NULL;
    auto_mem char *text = spec_to_json(s);
    char *source = strstr(text, "\"source\": {");
    assert_non_null(source);
    auto_sbuf old;
    sbuf_init(&old, SPEC_JSON_MAX);
    sbuf_add(&old, (struct str){text, (size_t)(source - text) + strlen("\"source\": {")});
    sbuf_adds(&old, "\"maxAge\": \"0ms\",");
    sbuf_adds(&old, source + strlen("\"source\": {"));
    assert_int_equal(spec_from_json(sbuf_str(&old), "volume.json", &back, &err), 0);
    assert_null(spec_difference(s, back));
    auto_json j = NULL;
    assert_int_equal(json_parse(STR("{\"uri\":\"s3://bucket/\",\"maxAge\":\"0ms\"}"), "source", &j, &err), 0);
    assert_int_equal(spec_set_source(back, j, &err), -ERR_INVALID);
    assert_int_equal(err.id, CIS_PARAMETER_UNKNOWN);
    assert_int_equal(spec_set_recorded_source(back, j, &err), 0);
}

static void several_sources_survive_json(void **state)
{
    (void)state;
    auto_spec a = full_spec();
    auto_spec b = NULL;
    struct err err = {0};
    must_set(a, "uri", "");
    must_set(a, "include", "");
    must_set(a, "exclude", "");
    must_set(a, "sources",
             "[{\"uri\":\"s3://aaa/\",\"subPath\":\"x\",\"exclude\":[\"*.a\"]},{\"uri\":\"gs://bucket/\"}]");
    auto_mem char *text = spec_to_json(a);
    if (spec_from_json(str_of(text), "volume.json", &b, &err) < 0)
        fail_msg("%s", err.text);
    assert_null(spec_difference(a, b));
}

static void a_truncated_file_is_corrupt_at_every_length(void **state)
{
    (void)state;
    auto_spec a = full_spec();
    auto_mem char *text = spec_to_json(a);
    for (size_t len = 0; len < strlen(text); len++) {
        struct spec *b = NULL;
        struct err err = {0};
        assert_int_equal(spec_from_json((struct str){text, len}, "volume.json", &b, &err), -ERR_CORRUPT);
        assert_int_equal(err.id, 2005);
        assert_null(b);
    }
}

static int read_with(const char *from, const char *to, struct err *err)
{
    auto_spec a = full_spec();
    auto_spec b = NULL;
    auto_mem char *text = spec_to_json(a);
    char *at = strstr(text, from);
    assert_non_null(at);
    auto_sbuf changed;
    sbuf_init(&changed, SPEC_JSON_MAX);
    sbuf_add(&changed, (struct str){text, (size_t)(at - text)});
    sbuf_adds(&changed, to);
    sbuf_adds(&changed, at + strlen(from));
    return spec_from_json(sbuf_str(&changed), "volume.json", &b, err);
}

static void reading_is_strict(void **state)
{
    (void)state;
    static const char *const edits[][2] = {
        {"\"id\": \"v1-", "\"id\": \"v9-"},
        {"\"name\": \"pvc-1\"", "\"name\": \"\""},
        {"\"name\": \"pvc-1\"", "\"name\": 7"},
        {"\"backend\": \"loop\"", "\"backend\": \"lvm\""},
        {"\"backend\": \"loop\"", "\"backend\": \"auto\""},
        {"\"version\": 1", "\"version\": 1, \"extra\": 1"},
        {"\"version\": 1,", ""},
        {"\"capacityBytes\": 10485760", "\"capacityBytes\": -1"},
        {"\"capacityBytes\": 10485760", "\"capacityBytes\": 9223372036854775807"},
        {"\"pool\": \"default\"", "\"pool\": \"default\", \"color\": \"red\""},
        {"\"pool\": \"default\"", "\"pool\": \"default\", \"uri\": \"s3://xxx/\""},
        {"\"hydration\": \"gate\"", "\"hydration\": 2"},
        {"\"concurrency\": 64", "\"concurrency\": \"64\""},
        {"\"pathStyle\": true", "\"pathStyle\": \"true\""},
        {"\"retry\": {", "\"retry\": {\"always\": true, "},
        {"\"retry\": {", "\"retry.maxAttempts\": 3, \"retry\": {"},
        {"\"createdAt\": \"2025", "\"createdAt\": \"yesterday"},
        {"\"parameters\": {", "\"parameters\": [], \"xarameters\": {"},
    };
    for (size_t i = 0; i < countof(edits); i++) {
        struct err err = {0};
        if (read_with(edits[i][0], edits[i][1], &err) != -ERR_CORRUPT)
            fail_msg("%s was taken", edits[i][1]);
    }
}

static void a_newer_format_is_refused_as_such(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(read_with("\"version\": 1", "\"version\": 2", &err), -ERR_UNSUPPORTED);
    assert_int_equal(err.id, 2004);
}

static void backend_name_parses_to_the_same_backend(void **state)
{
    (void)state;
    struct err err;
    for (enum spec_backend b = BACKEND_AUTO; b <= BACKEND_LOOP; b++) {
        enum spec_backend again = BACKEND_AUTO;
        assert_int_equal(spec_backend_parse(str_of(spec_backend_name(b)), &again, &err), 0);
        assert_int_equal(again, b);
    }
    enum spec_backend b;
    assert_int_equal(spec_backend_parse(STR("lvm"), &b, &err), -ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_documents),
        cmocka_unit_test(values_are_read_from_a_string_map),
        cmocka_unit_test(several_sources_come_as_json),
        cmocka_unit_test(export_uses_the_server_of_a_source_of_its_scheme_only),
        cmocka_unit_test(choice_of_a_text_is_its_enum_or_the_default),
        cmocka_unit_test(an_unknown_name_is_answered_with_the_nearest),
        cmocka_unit_test(a_bad_value_changes_nothing_and_is_named),
        cmocka_unit_test(value_that_needs_a_cluster_is_refused_without_one),
        cmocka_unit_test(policy_by_which_nothing_would_be_exported_is_refused_where_a_volume_is_made),
        cmocka_unit_test(policy_by_which_something_is_exported_is_taken),
        cmocka_unit_test(a_cluster_serves_identities_and_more),
        cmocka_unit_test(defaults_and_supported_values_are_accepted),
        cmocka_unit_test(sidecars_keys_are_ignored_but_for_a_file_system),
        cmocka_unit_test(contradictions_between_keys_are_refused),
        cmocka_unit_test(only_what_may_change_changes),
        cmocka_unit_test(the_first_difference_is_named),
        cmocka_unit_test(json_gives_back_what_it_was_given),
        cmocka_unit_test(volume_json_with_retired_fields_is_read),
        cmocka_unit_test(several_sources_survive_json),
        cmocka_unit_test(a_truncated_file_is_corrupt_at_every_length),
        cmocka_unit_test(reading_is_strict),
        cmocka_unit_test(backend_name_parses_to_the_same_backend),
        cmocka_unit_test(a_newer_format_is_refused_as_such),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
