/* SPDX-License-Identifier: Apache-2.0 */
#include "creds/trust.h"
#include "unit.h"

static void a_host_of_aws_is_made_of_a_region_and_of_nothing_else(void **state)
{
    static const char *const good[] = {"eu-west-1", "us-gov-east-1", "ap-southeast-2", "eusc-de-east-1",
                                       "us-isob-east-1"};
    static const char *const bad[] = {"",
                                      "evil.example/",
                                      "evil.example#",
                                      "x@evil.example",
                                      "eu-west-1.evil.example",
                                      "eu-west-1/",
                                      "eu-west-1?",
                                      "eu-west-1 ",
                                      "EU-WEST-1",
                                      "s3",
                                      "s3-eu-west-1",
                                      "elb",
                                      "eu-west",
                                      "eu-1",
                                      "northernmost-west-1",
                                      "a-b-c-d-e-1",
                                      "eu--1",
                                      "-west-1",
                                      "eu-west-1-",
                                      "eu-west-123",
                                      "eu-west-1\r\nhost: x",
                                      "127.0.0.1:9000/",
                                      "eu-w\xc3\xa9st-1",
                                      "eu%2ewest-1",
                                      "auto",
                                      "garage"};
    char url[TRUST_URL_MAX];
    struct err err;
    (void)state;
    for (size_t i = 0; i < countof(good); i++)
        assert_int_equal(trust_aws_url("sts", good[i], url, &err), 0);
    assert_string_equal(url, "https://sts.us-isob-east-1.amazonaws.com");
    assert_int_equal(trust_aws_url("s3", "cn-north-1", url, &err), 0);
    assert_string_equal(url, "https://s3.cn-north-1.amazonaws.com.cn");
    for (size_t i = 0; i < countof(bad); i++) {
        if (trust_aws_url("sts", bad[i], url, &err) != -ERR_INVALID)
            fail_msg("'%s' passed", bad[i]);
        assert_int_equal(err.id, 1002);
    }
}

static void the_providers_own_hosts_are_theirs_over_https_and_on_their_port(void **state)
{
    static const struct {
        const char *scheme, *endpoint;
        enum trust trust;
    } cases[] = {
        {"gs", "", TRUST_PROVIDER},
        {"gs", "https://storage.googleapis.com", TRUST_PROVIDER},
        {"gs", "https://storage.googleapis.com:443/", TRUST_PROVIDER},
        {"gs", "https://storage.europe-west4.rep.googleapis.com", TRUST_PROVIDER},
        {"gs", "https://storage.googleapis.com/other-bucket", TRUST_NOBODY},
        {"gs", "http://storage.googleapis.com", TRUST_NOBODY},
        {"gs", "https://storage.googleapis.com:8443", TRUST_NOBODY},
        {"gs", "https://storage.googleapis.com.", TRUST_NOBODY},
        {"gs", "https://storage.googleapis.com.evil.example", TRUST_NOBODY},
        {"gs", "https://evilstorage.googleapis.com", TRUST_NOBODY},
        {"gs", "https://storage.europe-west4.googleapis.com", TRUST_NOBODY},
        {"gs", "https://storage.europe-west4.evilgoogleapis.com", TRUST_NOBODY},
        {"gs", "https://run.europe-west4.rep.googleapis.com", TRUST_NOBODY},
        {"gs", "https://storage..rep.googleapis.com", TRUST_NOBODY},
        {"gs", "https://storage.evil.example/rep.googleapis.com", TRUST_NOBODY},
        {"gs", "https://storage.googleapis.com@evil.example", TRUST_NOBODY},
        {"gs", "https://storage.googleapis.com\\@evil.example", TRUST_NOBODY},
        {"gs", "https://storage.googleapis.com%2eevil.example", TRUST_NOBODY},
        {"gs", "https://s3.us-east-1.amazonaws.com", TRUST_NOBODY},
        {"gs", "https://\xd1\x95torage.googleapis.com", TRUST_NOBODY},
        {"s3", "https://s3.amazonaws.com", TRUST_PROVIDER},
        {"s3", "https://s3.eu-west-1.amazonaws.com", TRUST_PROVIDER},
        {"s3", "https://s3-eu-west-1.amazonaws.com", TRUST_PROVIDER},
        {"s3", "https://s3-fips.dualstack.us-east-1.amazonaws.com", TRUST_PROVIDER},
        {"s3", "https://s3.cn-north-1.amazonaws.com.cn", TRUST_PROVIDER},
        {"s3", "https://s3.eu-west-1.amazonaws.com/other-bucket", TRUST_NOBODY},
        {"s3", "https://s3.eu-west-1.amazonaws.com/%2e%2e", TRUST_NOBODY},
        {"s3", "https://x.execute-api.us-east-1.amazonaws.com", TRUST_NOBODY},
        {"s3", "https://s3.us-east-1.elb.amazonaws.com", TRUST_NOBODY},
        {"s3", "https://s3.elb.amazonaws.com", TRUST_NOBODY},
        {"s3", "https://s3-evil.amazonaws.com", TRUST_NOBODY},
        {"s3", "https://ec2-1-2-3-4.compute.amazonaws.com", TRUST_NOBODY},
        {"s3", "https://s3.us-east-1.amazonaws.com.evil.example", TRUST_NOBODY},
        {"s3", "https://minio.example:9000", TRUST_LISTED},
        {"s3", "https://minio.example:9000/path", TRUST_LISTED},
        {"s3", "http://minio.example:9000", TRUST_NOBODY},
        {"s3", "https://a.minio.example:9000", TRUST_NOBODY},
    };
    auto_guard g = NULL;
    struct err err;
    (void)state;
    assert_int_equal(guard_parse(STR("trust https://minio.example:9000\n"), &g, &err), 0);
    for (size_t i = 0; i < countof(cases); i++)
        if (trust_of(creds_kind_of(str_of(cases[i].scheme)), str_of(cases[i].endpoint), g) != cases[i].trust)
            fail_msg("%s", cases[i].endpoint);
    assert_int_equal(trust_of(CREDS_AWS, STR("https://minio.example:9000"), NULL), TRUST_NOBODY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_of_aws_is_made_of_a_region_and_of_nothing_else),
        cmocka_unit_test(the_providers_own_hosts_are_theirs_over_https_and_on_their_port),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
