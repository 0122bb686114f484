/* SPDX-License-Identifier: Apache-2.0 */
#include "creds/endpoint.h"
#include "ini.h"
#include "unit.h"

static void an_endpoint_is_taken_apart(void **state)
{
    static const struct {
        const char *text, *authority, *host, *path;
        bool tls;
    } good[] = {
        {"http://127.0.0.1:9000", "127.0.0.1:9000", "127.0.0.1", "", false},
        {"https://s3.example.com/", "s3.example.com", "s3.example.com", "", true},
        {"https://s3.example.com:443/base/", "s3.example.com", "s3.example.com", "/base", true},
        {"http://s3:80", "s3", "s3", "", false},
        {"http://[::1]:9000", "[::1]:9000", "[::1]", "", false},
        {"https://[::1]", "[::1]", "[::1]", "", true},
    };
    (void)state;
    for (size_t i = 0; i < countof(good); i++) {
        struct endpoint e;
        struct err err;
        assert_int_equal(endpoint_parse(str_of(good[i].text), &e, &err), 0);
        assert_int_equal(e.tls, good[i].tls);
        assert_true(str_eq(e.authority, str_of(good[i].authority)));
        assert_true(str_eq(e.host, str_of(good[i].host)));
        assert_true(str_eq(e.path, str_of(good[i].path)));
    }
}

static void invalid_endpoint_is_refused_with_its_reason(void **state)
{
    static const char *const bad[] = {"",           "s3.example.com", "ftp://x",        "http://",    "http://:80",
                                      "http://a:b", "http://a:0",     "http://a:70000", "http://a b", "http://u@h"};
    (void)state;
    for (size_t i = 0; i < countof(bad); i++) {
        struct endpoint e;
        struct err err;
        assert_int_equal(endpoint_parse(str_of(bad[i]), &e, &err), -ERR_INVALID);
        assert_int_equal(err.id, 1002);
    }
}

static void endpoint_is_address_accepts_addresses_only(void **state)
{
    (void)state;
    assert_true(endpoint_is_address(STR("10.0.0.1")));
    assert_true(endpoint_is_address(STR("[fd00::1]")));
    assert_false(endpoint_is_address(STR("10.example.com")));
    assert_false(endpoint_is_address(STR("")));
}

static void a_profile_is_found_among_others(void **state)
{
    static const char text[] = "# comment\n[default]\nregion = eu-west-1\r\n\n[profile  a]\nx=1\n"
                               "[profile b]\n aws = no\nkey=b=c \ns3 =\n  region = nested\n";
    struct str v;
    (void)state;
    assert_true(ini_value(STR(text), STR("default"), STR("region"), &v));
    assert_true(str_eq(v, STR("eu-west-1")));
    assert_true(ini_value(STR(text), STR("profile b"), STR("key"), &v));
    assert_true(str_eq(v, STR("b=c")));
    assert_false(ini_value(STR(text), STR("profile b"), STR("region"), &v));
    assert_false(ini_value(STR(text), STR("none"), STR("x"), &v));
    assert_false(ini_value(STR_NULL, STR("none"), STR("x"), &v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_endpoint_is_taken_apart),
        cmocka_unit_test(invalid_endpoint_is_refused_with_its_reason),
        cmocka_unit_test(endpoint_is_address_accepts_addresses_only),
        cmocka_unit_test(a_profile_is_found_among_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
