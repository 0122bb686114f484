/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/spec.h"
#include "unit.h"
#include <stdio.h>

static void uri_is_taken_apart_when_it_is_set(void **state)
{
    (void)state;
    struct err err;
    auto_spec s = spec_new();
    assert_int_equal(spec_set(s, STR("uri"), STR("gs://bucket/a/b"), &err), 0);
    assert_int_equal(spec_set(s, STR("export.uri"), STR("file://localhost/d/"), &err), 0);
    assert_string_equal(s->source.uri.view.scheme->name, "gs");
    assert_true(str_eq(s->source.uri.view.bucket, STR("bucket")));
    assert_true(str_eq(s->source.uri.view.prefix, STR("a/b")));
    assert_true(str_eq(s->export.uri.view.prefix, STR("/d/")));
    assert_int_equal(spec_set(s, STR("uri"), STR_NULL, &err), 0);
    assert_null(s->source.uri.text);
    assert_null(s->source.uri.view.scheme);
}

static void uri_that_no_store_takes_is_refused_when_it_is_set(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"http://x/", "an http:// URL is not a bucket"},
        {"s3://", "it names no bucket"},
        {"s3:///p/", "it names no bucket"},
        {"s3:/b/", "it has no scheme"},
        {"s3x://b/", "unknown scheme"},
        {"file://x/", "the path is not absolute"},
        {"s3://My-Bucket/p/", "a bucket name has a-z"},
        {"s3://my_bucket/", "a bucket name has a-z"},
        {"gs://ab/", "too short or too long"},
        {"gs://user:secret@bucket/", "credentials do not belong in a URI"},
    };
    static const char *const names[] = {"uri", "export.uri", "sources"};
    auto_spec s = spec_new();
    auto_spec untouched = spec_new();
    for (size_t i = 0; i < countof(bad) * countof(names); i++) {
        const char *const *one = bad[i / countof(names)], *name = names[i % countof(names)];
        char value[100];
        struct err err = {0};
        snprintf(value, sizeof value, strcmp(name, "sources") == 0 ? "[{\"uri\":\"%s\"}]" : "%s", one[0]);
        if (spec_set(s, str_of(name), str_of(value), &err) != -ERR_INVALID || err.id != CIS_PARAMETER_INVALID)
            fail_msg("%s=%s was taken, or refused as CIS%u", name, value, err.id);
        if (!strstr(err.text, name) || !strstr(err.text, one[1]) || !strstr(err.text, "expected s3://bucket/prefix/"))
            fail_msg("%s=%s: %s", name, value, err.text);
        assert_null(strstr(err.text, "secret"));
        assert_null(spec_difference(s, untouched));
    }
}

/* A volume of an earlier version must remain one that can be unpublished and deleted. */
static void volume_json_with_a_uri_that_is_now_refused_is_read(void **state)
{
    (void)state;
    static const char *const uris[] = {"s3://My_Bucket/p/", "gs://b/", "file:///d/"};
    for (size_t i = 0; i < countof(uris); i++) {
        struct err err = {0};
        char source[200];
        auto_spec s = spec_new();
        auto_spec back = NULL;
        auto_json j = NULL;
        snprintf(s->id.text, sizeof s->id.text, "v1-0123456789ab-ba9876543210");
        s->name = str_dup(STR("pvc-1"));
        s->backend = BACKEND_LOOP;
        snprintf(source, sizeof source, "{\"uri\":\"%s\",\"export\":{\"uri\":\"%s\"}}", uris[i], uris[i]);
        assert_int_equal(json_parse(str_of(source), "source", &j, &err), 0);
        assert_int_equal(spec_set_recorded_source(s, j, &err), 0);
        auto_mem char *text = spec_to_json(s);
        if (spec_from_json(str_of(text), "volume.json", &back, &err) < 0)
            fail_msg("%s", err.text);
        assert_null(spec_difference(s, back));
        assert_non_null(strstr(text, uris[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uri_is_taken_apart_when_it_is_set),
        cmocka_unit_test(uri_that_no_store_takes_is_refused_when_it_is_set),
        cmocka_unit_test(volume_json_with_a_uri_that_is_now_refused_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
