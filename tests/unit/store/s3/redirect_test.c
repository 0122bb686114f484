/* SPDX-License-Identifier: Apache-2.0 */
#include "s3/redirect.h"
#include "unit.h"

static bool leads(const char *from, const char *region, const char *location, struct redirect *ret)
{
    struct endpoint e;
    struct err err;
    assert_int_equal(endpoint_parse(str_of(from), &e, &err), 0);
    return redirect_read(str_of(location), &e, str_of(region), STR("bucket"), ret);
}

static void redirect_to_another_host_of_the_provider_is_followed(void **state)
{
    static const struct {
        const char *from, *region, *location, *endpoint, *to_region;
    } good[] = {
        {"https://s3.us-east-1.amazonaws.com", "us-east-1", "https://bucket.s3-eu-west-1.amazonaws.com/key?x=1",
         "https://s3-eu-west-1.amazonaws.com", "eu-west-1"},
        {"https://s3.us-east-1.amazonaws.com", "us-east-1", "https://s3.eu-west-1.amazonaws.com/bucket/key",
         "https://s3.eu-west-1.amazonaws.com", "eu-west-1"},
        {"https://s3.amazonaws.com", "us-east-1", "https://bucket.s3.dualstack.eu-west-1.amazonaws.com:443/",
         "https://s3.dualstack.eu-west-1.amazonaws.com", "eu-west-1"},
        {"https://s3.cn-north-1.amazonaws.com.cn", "cn-north-1", "https://s3.cn-northwest-1.amazonaws.com.cn/",
         "https://s3.cn-northwest-1.amazonaws.com.cn", "cn-northwest-1"},
        {"https://s3.wasabi.example", "us-east-1", "https://s3.eu-central-1.wasabi.example/bucket/",
         "https://s3.eu-central-1.wasabi.example", "eu-central-1"},
        {"https://s3.eu.example.com", "eu", "https://s3.example.com/bucket/", "https://s3.example.com", ""},
        {"http://s3.example.com:9000", "us-east-1", "http://s3.eu.example.com:9000/", "http://s3.eu.example.com:9000",
         "eu"},
    };
    (void)state;
    for (size_t i = 0; i < countof(good); i++) {
        struct redirect r = {0};
        assert_true(leads(good[i].from, good[i].region, good[i].location, &r));
        assert_string_equal(r.endpoint, good[i].endpoint);
        assert_string_equal(r.region, good[i].to_region);
    }
}

static void redirect_to_a_foreign_host_is_refused(void **state)
{
    static const struct {
        const char *from, *location;
    } bad[] = {
        {"https://s3.us-east-1.amazonaws.com", "https://evil.example.com/bucket/key"},
        {"https://s3.us-east-1.amazonaws.com", "https://s3.eu-west-1.amazonaws.com.evil.example/"},
        {"https://s3.us-east-1.amazonaws.com", "https://s3.evilamazonaws.com/"},
        {"https://s3.us-east-1.amazonaws.com", "https://s3-mine-1.us-east-1.elb.amazonaws.com/"}, /* a customer's */
        {"https://s3.us-east-1.amazonaws.com", "https://ec2-1-2-3-4.compute-1.amazonaws.com/"},
        {"https://s3.us-east-1.amazonaws.com", "https://other.s3.eu-west-1.amazonaws.com/"}, /* another bucket */
        {"https://s3.us-east-1.amazonaws.com", "http://s3.eu-west-1.amazonaws.com/"},        /* in clear text */
        {"https://s3.us-east-1.amazonaws.com", "https://s3.eu-west-1.amazonaws.com:8443/"},
        {"https://s3.us-east-1.amazonaws.com", "https://u:p@s3.eu-west-1.amazonaws.com/"},
        {"https://s3.us-east-1.amazonaws.com", "https://evil.example#s3.eu-west-1.amazonaws.com/"},
        {"https://s3.us-east-1.amazonaws.com", "/bucket/key"},
        {"https://s3.us-east-1.amazonaws.com", ""},
        {"http://127.0.0.1:9000", "http://127.0.0.1:9001/"},
        {"http://127.0.0.1:9000", "http://127.0.0.1:9000/"},
        {"http://s3.localhost:9000", "http://s3.eu.localhost:9000/"},
        {"https://minio.example.com", "https://s3.example.com/"},
        {"https://s3.example.com/base", "https://s3.eu.example.com/"},
    };
    (void)state;
    for (size_t i = 0; i < countof(bad); i++) {
        struct redirect r = {.region = "as it was"};
        assert_false(leads(bad[i].from, "us-east-1", bad[i].location, &r));
        assert_string_equal(r.region, "as it was");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(redirect_to_another_host_of_the_provider_is_followed),
        cmocka_unit_test(redirect_to_a_foreign_host_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
