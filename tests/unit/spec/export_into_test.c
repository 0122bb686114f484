/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/spec.h"
#include "unit.h"

static void set(struct spec *s, const char *key, const char *value)
{
    struct err err;
    if (spec_set(s, str_of(key), str_of(value), &err) < 0)
        fail_msg("%s=%s: %s", key, value, err.text);
}

static void an_export_into_the_source_is_seen_unless_the_source_leaves_it_out(void **state)
{
    (void)state;
    static const struct {
        const char *uri, *include, *exclude, *to, *exported;
        bool is_into;
    } cases[] = {
        {"s3://bucket/in/", NULL, NULL, "s3://bucket/in/", NULL, true},
        {"s3://bucket/in/", NULL, NULL, "s3://bucket/in", NULL, true},
        {"s3://bucket", NULL, NULL, "s3://bucket/out/", NULL, true},
        {"s3://bucket/in/", NULL, NULL, "s3://bucket/in/ckpt/", "*.pt", true},
        {"s3://bucket/in/", NULL, NULL, "s3://bucket/inner/", NULL, false},
        {"s3://bucket/in/data", NULL, NULL, "s3://bucket/in/data/", NULL, false}, /* one object */
        {"s3://bucket/in/", NULL, NULL, "s3://ccc/in/", NULL, false},
        {"s3://bucket/in/", NULL, NULL, "gs://bucket/in/", NULL, false},
        {"s3://bucket/in/", "data/**", NULL, "s3://bucket/in/", "ckpt/**", false},
        {"s3://bucket/in/", "*.pt", NULL, "s3://bucket/in/out/", "*.pt", true},
        {"s3://bucket/in/", NULL, "ckpt/**", "s3://bucket/in/", "ckpt/**", false},
        {"s3://bucket/in/", NULL, "out/**", "s3://bucket/in/out/", NULL, false},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        auto_spec s = spec_new();
        assert_null(spec_exports_into(s));
        set(s, "uri", cases[i].uri);
        assert_null(spec_exports_into(s));
        if (cases[i].include)
            set(s, "include", cases[i].include);
        if (cases[i].exclude)
            set(s, "exclude", cases[i].exclude);
        if (cases[i].exported)
            set(s, "export.include", cases[i].exported);
        set(s, "export.uri", cases[i].to);
        const char *into = spec_exports_into(s);
        if (!into != !cases[i].is_into)
            fail_msg("%s to %s: %s", cases[i].uri, cases[i].to, into ? into : "none");
        set(s, "export.endpoint", "https://elsewhere.example");
        assert_null(spec_exports_into(s));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_export_into_the_source_is_seen_unless_the_source_leaves_it_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
