/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "util/x509.h"

enum { NOW = 1800000000 };

static const char *const names[] = {"one.example", "two.example"};

static void make(struct x509_pair *authority, struct x509_pair *server)
{
    struct err err;
    assert_int_equal(x509_make_authority("test", (struct x509_validity){NOW, NOW + 100}, authority, &err), 0);
    assert_int_equal(x509_make_server(authority, names, 2, (struct x509_validity){NOW, NOW + 50}, server, &err), 0);
}

static void server_certificate_has_issuer_purpose_and_validity(void **state)
{
    (void)state;
    struct x509_pair authority = {0}, server = {0};
    struct x509_validity life;
    make(&authority, &server);
    assert_true(x509_is_signed_by(server.certificate, authority.certificate));
    assert_false(x509_is_signed_by(authority.certificate, server.certificate));
    assert_true(x509_is_pair(&server) && x509_is_pair(&authority));
    assert_true(x509_is_for(server.certificate, "one.example") && x509_is_for(server.certificate, "two.example"));
    assert_false(x509_is_for(server.certificate, "three.example"));
    assert_true(x509_validity_of(str_of(server.certificate), &life));
    assert_int_equal(life.from_s, NOW);
    assert_int_equal(life.until_s, NOW + 50);
    x509_pair_done(&authority);
    x509_pair_done(&server);
}

static void key_of_another_certificate_does_not_match(void **state)
{
    (void)state;
    struct x509_pair authority = {0}, server = {0};
    make(&authority, &server);
    struct x509_pair mixed = {server.certificate, authority.key}, keyless = {server.certificate, NULL};
    assert_false(x509_is_pair(&mixed));
    assert_false(x509_is_pair(&keyless));
    x509_pair_done(&authority);
    x509_pair_done(&server);
}

static void text_without_a_certificate_is_an_error(void **state)
{
    (void)state;
    struct x509_validity life;
    struct err err;
    struct x509_pair ret = {0}, nobody = {(char *)"x", (char *)"y"};
    assert_false(x509_validity_of(STR("nothing"), &life));
    assert_false(x509_validity_of(STR_NULL, &life));
    assert_int_equal(x509_make_server(&nobody, names, 2, (struct x509_validity){NOW, NOW + 1}, &ret, &err),
                     -ERR_INVALID);
    assert_null(ret.certificate);
    assert_false(x509_is_for(NULL, "x"));
}

static void a_bundle_is_cut_into_its_certificates(void **state)
{
    (void)state;
    struct x509_pair authority = {0}, server = {0};
    auto_sbuf b;
    struct str one;
    make(&authority, &server);
    sbuf_init(&b, 65536);
    sbuf_addf(&b, "# a comment\n%s%s-----BEGIN CERTIFICATE-----\ncut", authority.certificate, server.certificate);
    struct str rest = sbuf_str(&b);
    assert_true(x509_split(&rest, &one) && str_eq(one, str_of(authority.certificate)));
    assert_true(x509_split(&rest, &one) && str_eq(one, str_of(server.certificate)));
    assert_false(x509_split(&rest, &one));
    struct str bare = str_trim(str_of(server.certificate)); /* no newline at its end */
    rest = bare;
    assert_true(x509_split(&rest, &one) && str_eq(one, bare) && rest.len == 0);
    x509_pair_done(&authority);
    x509_pair_done(&server);
}

static void a_bundle_to_trust_holds_certificates_and_no_key(void **state)
{
    (void)state;
    struct x509_pair authority = {0}, server = {0};
    auto_sbuf b;
    struct err err;
    make(&authority, &server);
    sbuf_init(&b, 65536);
    sbuf_addf(&b, "whose it is\n%s\n%s", authority.certificate, server.certificate);
    assert_int_equal(x509_check_bundle(sbuf_str(&b), &err), 0);
    sbuf_adds(&b, authority.key);
    assert_int_equal(x509_check_bundle(sbuf_str(&b), &err), -ERR_INVALID);
    assert_non_null(strstr(err.text, "private key"));
    assert_int_equal(x509_check_bundle(STR_NULL, &err), -ERR_INVALID);
    assert_int_equal(x509_check_bundle(STR("no certificate"), &err), -ERR_INVALID);
    sbuf_clear(&b);
    sbuf_addf(&b, "%s-----BEGIN CERTIFICATE-----\ncut", authority.certificate);
    assert_int_equal(x509_check_bundle(sbuf_str(&b), &err), -ERR_INVALID);
    assert_string_equal(err.text, "its certificate 2 is cut off");
    x509_pair_done(&authority);
    x509_pair_done(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(server_certificate_has_issuer_purpose_and_validity),
        cmocka_unit_test(key_of_another_certificate_does_not_match),
        cmocka_unit_test(text_without_a_certificate_is_an_error),
        cmocka_unit_test(a_bundle_is_cut_into_its_certificates),
        cmocka_unit_test(a_bundle_to_trust_holds_certificates_and_no_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
