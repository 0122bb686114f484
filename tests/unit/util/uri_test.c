/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/uri.h"

static void uri_of_known_store_is_split(void **state)
{
    static const struct {
        const char *text, *scheme, *bucket, *prefix;
    } good[] = {
        {"s3://b", "s3", "b", ""},
        {"s3://b/", "s3", "b", ""},
        {"s3://b/p://q", "s3", "b", "p://q"},
        {"gs://b//p", "gs", "b", "/p"},
        {"s3:///p", "s3", "", "p"},
        {"s3://", "s3", "", ""},
        {"file:///d/", "file", "", "/d/"},
        {"file://host/d", "file", "", "host/d"},
    };
    (void)state;
    for (size_t i = 0; i < countof(good); i++) {
        struct uri u = uri_split(str_of(good[i].text));
        assert_non_null(u.scheme);
        assert_string_equal(u.scheme->name, good[i].scheme);
        assert_true(str_eq(u.bucket, str_of(good[i].bucket)));
        assert_true(str_eq(u.prefix, str_of(good[i].prefix)));
    }
}

static void uri_of_other_text_has_no_scheme(void **state)
{
    static const char *const texts[] = {"gsx://b/", "gs:/b/", "gs", "", "://b", "s3:b://"};
    (void)state;
    for (size_t i = 0; i < countof(texts); i++)
        assert_null(uri_split(str_of(texts[i])).scheme);
    assert_null(uri_split(STR_NULL).scheme);
}

static void valid_uri_passes_and_is_split_into_bucket_and_prefix(void **state)
{
    static const struct {
        const char *text, *bucket, *prefix;
        const char *scheme;
    } good[] = {
        {"s3://bucket", "bucket", "", "s3"},
        {"s3://bucket/", "bucket", "", "s3"},
        {"s3://bucket/a/b/", "bucket", "a/b/", "s3"},
        {"s3://bucket//a", "bucket", "/a", "s3"},
        {"s3://my.bucket-1/a b+%2F?#", "my.bucket-1", "a b+%2F?#", "s3"},
        {"gs://my_bucket/x", "my_bucket", "x", "gs"},
        {"gs://b.example.com/..", "b.example.com", "..", "gs"},
        {"file:///data/x", "", "/data/x", "file"},
        {"file://localhost/data", "", "/data", "file"},
        {"file:///", "", "/", "file"},
    };
    (void)state;
    for (size_t i = 0; i < countof(good); i++) {
        struct err err;
        assert_int_equal(uri_check(str_of(good[i].text), &err), 0);
        struct uri u = uri_split(str_of(good[i].text));
        assert_string_equal(u.scheme->name, good[i].scheme);
        assert_true(str_eq(u.bucket, str_of(good[i].bucket)));
        assert_true(str_eq(u.prefix, str_of(good[i].prefix)));
    }
}

static void each_invalid_uri_is_refused_with_its_reason(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "it is empty"},
        {"/data", "it has no scheme"},
        {"s3:/b", "it has no scheme"},
        {"bucket/key", "it has no scheme"},
        {"https://b.s3.amazonaws.com/k", "an http:// URL is not a bucket"},
        {"gcs://bucket", "unknown scheme 'gcs'"},
        {"s3a://bucket", "Hadoop"},
        {"S3://bucket", "lower case"},
        {"ftp://bucket", "unknown scheme"},
        {"s3://", "it names no bucket"},
        {"s3:///key", "it names no bucket"},
        {"gs:///", "it names no bucket"},
        {"s3://ab/k", "too short or too long"},
        {"s3://Bucket/k", "a bucket name has a-z"},
        {"s3://my_bucket/k", "a bucket name has a-z"},
        {"s3://-bucket/k", "begins and ends"},
        {"s3://bucket./k", "begins and ends"},
        {"s3://user:pw@bucket/k", "user name or password"},
        {"s3://bucket:9000/k", "it has a port"},
        {"s3://bucket.s3.eu-west-1.amazonaws.com/k", "it has a host name"},
        {"gs://storage.googleapis.com/bucket/k", "it has a host name"},
        {"s3://arn:aws:s3:::bucket/k", "ARNs"},
        {"file://", "it names no directory"},
        {"file://host/data", "not absolute, or a host"},
        {"file://data", "not absolute, or a host"},
    };
    (void)state;
    for (size_t i = 0; i < countof(bad); i++) {
        struct err err;
        assert_int_equal(uri_check(str_of(bad[i].text), &err), -ERR_INVALID);
        if (!strstr(err.text, bad[i].why))
            fail_msg("'%s': %s", bad[i].text, err.text);
        assert_int_equal(err.id, 1001);
        assert_true(err.advice[0] != '\0');
    }
}

static void nul_bytes_and_long_keys_are_refused(void **state)
{
    struct err err;
    char text[1100] = "s3://bucket/";
    size_t start = strlen(text);
    (void)state;
    assert_int_equal(uri_check(STR("s3://bucket/a\0b"), &err), -ERR_INVALID);
    memset(text + start, 'k', 1025);
    assert_int_equal(uri_check((struct str){text, start + 1024}, &err), 0);
    assert_int_equal(uri_check((struct str){text, start + 1025}, &err), -ERR_INVALID);
}

static void a_password_is_not_repeated(void **state)
{
    static const char *const texts[] = {"s3://AKIA:secret@bucket/a@b", "https://user:secret@host:80", "s3://a:secret@",
                                        "s4://secret@x/y"};
    (void)state;
    for (size_t i = 0; i < countof(texts); i++) {
        struct err err;
        assert_true(uri_check(str_of(texts[i]), &err) < 0);
        assert_null(strstr(err.text, "secret"));
    }
    char shown[URI_SHOWN_ROOM];
    assert_string_equal(uri_shown(STR("s3://AKIA:secret@bucket/a@b"), shown), "s3://...@bucket/a@b");
    assert_string_equal(uri_shown(STR("s3://bucket/a@b"), shown), "s3://bucket/a@b");
    assert_string_equal(uri_shown(STR("user:secret@host/x"), shown), "...@host/x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uri_of_known_store_is_split),
        cmocka_unit_test(uri_of_other_text_has_no_scheme),
        cmocka_unit_test(valid_uri_passes_and_is_split_into_bucket_and_prefix),
        cmocka_unit_test(each_invalid_uri_is_refused_with_its_reason),
        cmocka_unit_test(a_password_is_not_repeated),
        cmocka_unit_test(nul_bytes_and_long_keys_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
