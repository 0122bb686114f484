/* SPDX-License-Identifier: Apache-2.0 */
#include "creds/sigv4.h"
#include "unit.h"

/* The examples of "Authenticating Requests: Using the Authorization Header" in the S3 API Reference. */
#define KEY_ID "AKIAIOSFODNN7EXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define WALL_NS (INT64_C(1369353600) * 1000000000) /* 2013-05-24T00:00:00Z */

static struct sigv4_cache cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void assert_signature(struct sigv4_request r, const char *want)
{
    auto_sbuf b;
    sbuf_init(&b, 4096);
    r.wall_ns = WALL_NS;
    r.region = STR("us-east-1");
    r.service = STR("s3");
    r.access_key_id = STR(KEY_ID);
    r.secret = STR(SECRET);
    sigv4_sign(&cache, &r, &b);
    assert_true(
        str_starts(sbuf_str(&b), STR("AWS4-HMAC-SHA256 Credential=" KEY_ID "/20130524/us-east-1/s3/aws4_request,"
                                     "SignedHeaders=")));
    const char *signature = strstr(b.ptr, "Signature=");
    assert_non_null(signature);
    assert_string_equal(signature + 10, want);
}

static void the_vendors_examples_are_signed_as_printed(void **state)
{
    (void)state;
    const struct sigv4_header get[] = {{STR("host"), STR("examplebucket.s3.amazonaws.com")},
                                       {STR("range"), STR("bytes=0-9")},
                                       {STR("x-amz-content-sha256"), STR(EMPTY)},
                                       {STR("x-amz-date"), STR("20130524T000000Z")}};
    const struct sigv4_header list[] = {{STR("host"), STR("examplebucket.s3.amazonaws.com")},
                                        {STR("x-amz-content-sha256"), STR(EMPTY)},
                                        {STR("x-amz-date"), STR("20130524T000000Z")}};
    const struct sigv4_header put[] = {
        {STR("date"), STR("Fri, 24 May 2013 00:00:00 GMT")},
        {STR("host"), STR("examplebucket.s3.amazonaws.com")},
        {STR("x-amz-content-sha256"), STR("44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072")},
        {STR("x-amz-date"), STR("20130524T000000Z")},
        {STR("x-amz-storage-class"), STR("REDUCED_REDUNDANCY")}};
    assert_signature((struct sigv4_request){.method = STR("GET"),
                                            .path = STR("/test.txt"),
                                            .headers = get,
                                            .header_count = countof(get),
                                            .payload = STR(EMPTY)},
                     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    assert_signature((struct sigv4_request){.method = STR("PUT"),
                                            .path = STR("/test%24file.text"),
                                            .headers = put,
                                            .header_count = countof(put),
                                            .payload = put[2].value},
                     "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    assert_signature((struct sigv4_request){.method = STR("GET"),
                                            .path = STR("/"),
                                            .query = STR("lifecycle="),
                                            .headers = list,
                                            .header_count = countof(list),
                                            .payload = STR(EMPTY)},
                     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    assert_signature((struct sigv4_request){.method = STR("GET"),
                                            .path = STR("/"),
                                            .query = STR("max-keys=2&prefix=J"),
                                            .headers = list,
                                            .header_count = countof(list),
                                            .payload = STR(EMPTY)},
                     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

static void another_secret_is_not_signed_with_the_kept_key(void **state)
{
    (void)state;
    const struct sigv4_header h[] = {{STR("host"), STR("h")}};
    struct sigv4_request r = {.method = STR("GET"),
                              .path = STR("/"),
                              .headers = h,
                              .header_count = 1,
                              .payload = STR(EMPTY),
                              .wall_ns = WALL_NS,
                              .region = STR("us-east-1"),
                              .service = STR("s3"),
                              .access_key_id = STR(KEY_ID)};
    const struct str secrets[] = {STR(SECRET), STR("another"), STR(SECRET)};
    struct sbuf b[3];
    for (size_t i = 0; i < 3; i++) {
        sbuf_init(&b[i], 4096);
        r.secret = secrets[i];
        sigv4_sign(&cache, &r, &b[i]);
    }
    assert_string_not_equal(b[0].ptr, b[1].ptr);
    assert_string_equal(b[0].ptr, b[2].ptr);
    for (size_t i = 0; i < 3; i++)
        sbuf_done(&b[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vendors_examples_are_signed_as_printed),
        cmocka_unit_test(another_secret_is_not_signed_with_the_kept_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
