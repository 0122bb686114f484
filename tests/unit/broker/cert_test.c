/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/cert.h"
#include "unit.h"

enum { DAY = 86400, START = 1800000000 };

static const char first_name[] = "cistern-broker.cistern-system.svc";
static const char second_name[] = "cistern-broker.cistern-system.svc.cluster.local";

static bool step(struct cert_set *s, int64_t wall_s, const char *published)
{
    struct err err;
    bool changed = false;
    struct cert_now now = {.wall_s = wall_s, .names = {first_name, second_name}};
    now.published = published ? str_of(published) : STR_NULL;
    if (cert_step(s, &now, &changed, &err) < 0)
        fail_msg("%s", err.text);
    return changed;
}

static size_t count_of(const char *bundle)
{
    size_t n = 0;
    struct str rest = str_of(bundle), one;
    while (x509_split(&rest, &one))
        n++;
    return n;
}

static void empty_set_gets_a_ca_and_a_certificate_for_both_names(void **state)
{
    (void)state;
    struct cert_set s = {0};
    assert_true(step(&s, START, NULL));
    assert_true(x509_is_signed_by(s.server.certificate, s.authority.certificate));
    assert_true(x509_is_pair(&s.server));
    assert_true(x509_is_for(s.server.certificate, first_name));
    assert_true(x509_is_for(s.server.certificate, second_name));
    assert_false(x509_is_for(s.server.certificate, "cistern-broker.other.svc"));
    assert_string_equal(s.bundle, s.authority.certificate);
    assert_null(s.next.certificate);
    assert_false(step(&s, START + DAY, s.bundle));
    cert_set_done(&s);
}

static void certificate_is_renewed_before_its_end_by_the_same_ca(void **state)
{
    (void)state;
    struct cert_set s = {0};
    step(&s, START, NULL);
    auto_mem char *authority = str_dup(str_of(s.authority.certificate));
    auto_mem char *server = str_dup(str_of(s.server.certificate));
    assert_false(step(&s, START + 9 * DAY, s.bundle));
    assert_true(step(&s, START + 11 * DAY, s.bundle));
    assert_string_equal(s.authority.certificate, authority);
    assert_string_not_equal(s.server.certificate, server);
    cert_set_done(&s);
}

static void next_ca_signs_after_an_hour_of_publication(void **state)
{
    (void)state;
    struct cert_set s = {0};
    int64_t now = START + 310 * (int64_t)DAY;
    step(&s, START, NULL);
    auto_mem char *old = str_dup(str_of(s.authority.certificate));
    auto_mem char *old_bundle = str_dup(str_of(s.bundle));
    assert_true(step(&s, now, s.bundle));
    assert_non_null(s.next.certificate);
    assert_true(x509_is_signed_by(s.server.certificate, old));
    assert_int_equal(count_of(s.bundle), 2);
    assert_false(step(&s, now + 1800, s.bundle));   /* too early */
    assert_false(step(&s, now + 7200, old_bundle)); /* old enough, but not published */
    assert_string_equal(s.authority.certificate, old);
    assert_true(step(&s, now + 7200, s.bundle));
    assert_string_not_equal(s.authority.certificate, old);
    assert_true(x509_is_signed_by(s.server.certificate, s.authority.certificate));
    assert_int_equal(count_of(s.bundle), 2); /* the old CA stays: its certificates may still be in use */
    cert_set_done(&s);
}

static void expired_ca_leaves_the_bundle(void **state)
{
    (void)state;
    struct cert_set s = {0};
    int64_t now = START + 310 * (int64_t)DAY;
    step(&s, START, NULL);
    auto_mem char *old = str_dup(str_of(s.authority.certificate));
    step(&s, now, s.bundle);
    step(&s, now + 7200, s.bundle);
    step(&s, START + 364 * (int64_t)DAY, s.bundle);
    assert_non_null(strstr(s.bundle, old));
    assert_true(step(&s, START + 366 * (int64_t)DAY, s.bundle));
    assert_null(strstr(s.bundle, old));
    assert_int_equal(count_of(s.bundle), 1);
    cert_set_done(&s);
}

static void certificate_ends_with_its_ca_at_the_latest(void **state)
{
    (void)state;
    struct cert_set s = {0};
    struct x509_validity server, authority;
    int64_t now = START + 350 * (int64_t)DAY;
    step(&s, START, NULL);
    step(&s, now, s.bundle);
    assert_true(x509_validity_of(str_of(s.server.certificate), &server));
    assert_true(x509_validity_of(str_of(s.authority.certificate), &authority));
    assert_int_equal(server.until_s, authority.until_s);
    assert_false(step(&s, now + 60, s.bundle)); /* no repeated renewal near that end */
    cert_set_done(&s);
}

static void damaged_secret_is_replaced(void **state)
{
    (void)state;
    struct cert_set s = {0};
    step(&s, START, NULL);
    free(s.authority.key);
    s.authority.key = str_dup(STR("no key"));
    free(s.server.certificate);
    s.server.certificate = str_dup(STR("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"));
    free(s.bundle);
    s.bundle = str_dup(STR("rubbish -----BEGIN CERTIFICATE-----\nx"));
    assert_true(step(&s, START + 1, NULL));
    assert_true(x509_is_pair(&s.server));
    assert_true(x509_is_signed_by(s.server.certificate, s.authority.certificate));
    assert_int_equal(count_of(s.bundle), 1);
    cert_set_done(&s);
}

static void certificates_of_a_clock_that_was_ahead_are_replaced(void **state)
{
    (void)state;
    struct cert_set s = {0};
    struct x509_validity authority, server;
    step(&s, START + DAY, NULL);
    assert_true(step(&s, START, s.bundle));
    assert_true(x509_validity_of(str_of(s.authority.certificate), &authority) && authority.from_s < START);
    assert_true(x509_validity_of(str_of(s.server.certificate), &server) && server.from_s < START);
    assert_true(x509_is_signed_by(s.server.certificate, s.authority.certificate));
    assert_false(step(&s, START + DAY, s.bundle));
    cert_set_done(&s);
}

static void certificate_with_another_name_is_replaced(void **state)
{
    (void)state;
    struct cert_set s = {0};
    struct err err;
    bool changed = false;
    struct cert_now now = {.wall_s = START, .names = {"cistern-broker.elsewhere.svc"}};
    step(&s, START, NULL);
    assert_int_equal(cert_step(&s, &now, &changed, &err), 0);
    assert_true(changed);
    assert_true(x509_is_for(s.server.certificate, "cistern-broker.elsewhere.svc"));
    cert_set_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_set_gets_a_ca_and_a_certificate_for_both_names),
        cmocka_unit_test(certificate_is_renewed_before_its_end_by_the_same_ca),
        cmocka_unit_test(next_ca_signs_after_an_hour_of_publication),
        cmocka_unit_test(expired_ca_leaves_the_bundle),
        cmocka_unit_test(certificate_ends_with_its_ca_at_the_latest),
        cmocka_unit_test(damaged_secret_is_replaced),
        cmocka_unit_test(certificates_of_a_clock_that_was_ahead_are_replaced),
        cmocka_unit_test(certificate_with_another_name_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
