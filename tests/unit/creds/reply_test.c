/* SPDX-License-Identifier: Apache-2.0 */
#include "reply.h"
#include "unit.h"

static void sts_reply_gives_the_temporary_key(void **state)
{
    auto_creds_identity i = NULL;
    struct err err;
    (void)state;
    assert_int_equal(reply_role(200,
                                STR("<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult>"
                                    "<Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>S</SecretAccessKey>"
                                    "<SessionToken>T</SessionToken><Expiration>2026-11-21T10:00:00Z</Expiration>"
                                    "</Credentials></AssumeRoleWithWebIdentityResult>"
                                    "</AssumeRoleWithWebIdentityResponse>"),
                                &i, &err),
                     0);
    assert_string_equal(i->access_key_id, "A");
    assert_string_equal(i->secret, "S");
    assert_string_equal(i->session_token, "T");
    assert_true(i->expires_ns > 0);
}

static void sts_refusal_names_its_code(void **state)
{
    auto_creds_identity i = NULL;
    struct err err;
    (void)state;
    assert_int_equal(reply_role(403,
                                STR("<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error>"
                                    "</ErrorResponse>"),
                                &i, &err),
                     -ERR_DENIED);
    assert_non_null(strstr(err.text, "403 AccessDenied: no"));
    assert_int_equal(reply_role(502, STR("<html>"), &i, &err), -ERR_AGAIN);
    assert_null(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sts_reply_gives_the_temporary_key),
        cmocka_unit_test(sts_refusal_names_its_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
