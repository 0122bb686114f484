/* SPDX-License-Identifier: Apache-2.0 */
#include "messages.h"
#include "unit.h"
#include "util/clock.h"

static int parse(const char *body, struct credential_request *ret, struct err *err)
{
    return credential_request_parse(str_of(body), ret, err);
}

static void request_parse_reads_volume_purpose_kind_and_fingerprint(void **state)
{
    (void)state;
    struct credential_request a;
    struct err err;
    assert_int_equal(parse("{\"volume\":\"pvc-1.x\",\"for\":\"hydrate\"}", &a, &err), 0);
    assert_string_equal(a.volume, "pvc-1.x");
    assert_false(a.is_export);
    assert_int_equal(a.creds, CREDS_NONE);
    assert_int_equal(
        parse("{\"volume\":\"v\",\"for\":\"export\",\"scheme\":\"gs\",\"refused\":\"0123456789abcdef\"}", &a, &err), 0);
    assert_true(a.is_export);
    assert_int_equal(a.creds, CREDS_GOOGLE);
    assert_string_equal(a.refused, "0123456789abcdef");
}

static void request_parse_rejects_malformed_requests(void **state)
{
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"volume\":\"v\"}",
                                      "{\"for\":\"export\"}",
                                      "{\"volume\":\"\",\"for\":\"export\"}",
                                      "{\"volume\":\"a/b\",\"for\":\"export\"}",
                                      "{\"volume\":\"V\",\"for\":\"export\"}",
                                      "{\"volume\":\"v\",\"for\":\"both\"}",
                                      "{\"volume\":\"v\",\"for\":\"export\",\"x\":1}",
                                      "{\"volume\":\"v\",\"for\":\"export\",\"scheme\":\"file\"}",
                                      "{\"volume\":\"v\",\"for\":\"export\",\"refused\":\"0123456789abcdef0\"}",
                                      "{\"volume\":\"v\",\"for\":\"export\",\"refused\":\"g\"}"};
    struct credential_request a;
    struct err err;
    (void)state;
    for (size_t i = 0; i < countof(bad); i++)
        assert_int_equal(parse(bad[i], &a, &err), -ERR_INVALID);
}

static void bearer_token_is_read_from_the_header(void **state)
{
    (void)state;
    struct str token;
    struct err err;
    assert_int_equal(bearer_token_of(STR("bearer  abc "), &token, &err), 0);
    assert_true(str_eq(token, STR("abc")));
    assert_int_equal(bearer_token_of(STR("Basic abc"), &token, &err), -ERR_DENIED);
    assert_int_equal(bearer_token_of(STR("Bearer "), &token, &err), -ERR_DENIED);
    assert_int_equal(bearer_token_of(STR_NULL, &token, &err), -ERR_DENIED);
    assert_int_equal(err.id, 1902);
}

static void reply_has_the_fields_of_each_kind(void **state)
{
    (void)state;
    struct err err;
    auto_creds_identity key = creds_identity_new();
    auto_creds_identity token = creds_identity_new();
    auto_creds_identity anonymous_identity = creds_identity_new();
    auto_sbuf b;
    sbuf_init(&b, 4096);
    key->access_key_id = str_dup(STR("AKIA"));
    key->secret = str_dup(STR("s/+="));
    token->bearer = str_dup(STR("Bearer ya29"));
    anonymous_identity->anonymous = true;
    key->expires_ns = token->expires_ns = anonymous_identity->expires_ns = 1800000000 * (int64_t)NS_PER_SECOND;
    assert_int_equal(reply_with_credential(&(struct credential_reply){"s3", key, "irsa", "arn:x"}, &b, &err), 0);
    assert_string_equal(b.ptr, "{\"scheme\":\"s3\",\"expiresAt\":\"2027-01-15T08:00:00.000Z\",\"accessKeyID\":\"AKIA\","
                               "\"secretAccessKey\":\"s/+=\",\"method\":\"irsa\",\"principal\":\"arn:x\"}");
    sbuf_clear(&b);
    assert_int_equal(reply_with_credential(&(struct credential_reply){"gs", token, "gke", "p"}, &b, &err), 0);
    assert_non_null(strstr(b.ptr, "\"accessToken\":\"ya29\""));
    sbuf_clear(&b);
    assert_int_equal(
        reply_with_credential(&(struct credential_reply){"anonymous", anonymous_identity, "anonymous", "p"}, &b, &err),
        0);
    assert_null(strstr(b.ptr, "access"));
}

static void reply_rejects_a_credential_that_needs_escaping(void **state)
{
    (void)state;
    struct err err;
    auto_creds_identity token = creds_identity_new();
    auto_sbuf b;
    sbuf_init(&b, 4096);
    token->bearer = str_dup(STR("Bearer a\",\"scheme\":\"s3"));
    assert_int_equal(reply_with_credential(&(struct credential_reply){"gs", token, "gke", "p"}, &b, &err),
                     -ERR_CORRUPT);
    assert_null(strstr(err.text, "scheme"));
}

static void error_reply_has_status_message_and_id(void **state)
{
    static const struct {
        enum err_code code;
        unsigned id, status;
    } cases[] = {{ERR_DENIED, 1902, 401},    {ERR_DENIED, 1903, 403}, {ERR_AGAIN, 1910, 429},  {ERR_AGAIN, 1702, 503},
                 {ERR_NOT_FOUND, 1906, 404}, {ERR_INVALID, 0, 400},   {ERR_CORRUPT, 1702, 502}};
    (void)state;
    for (size_t i = 0; i < countof(cases); i++) {
        struct err err;
        auto_sbuf b;
        sbuf_init(&b, 4096);
        err_set(&err, cases[i].code, "it \"broke\"");
        if (cases[i].id)
            err_advise_text(&err, cases[i].id, "mend it");
        assert_int_equal(reply_with_error(&err, &b), cases[i].status);
        assert_non_null(strstr(b.ptr, "\"message\":\"it \\\"broke\\\"\""));
        assert_int_equal(strstr(b.ptr, "\"id\":") != NULL, cases[i].id != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_parse_reads_volume_purpose_kind_and_fingerprint),
        cmocka_unit_test(request_parse_rejects_malformed_requests),
        cmocka_unit_test(bearer_token_is_read_from_the_header),
        cmocka_unit_test(reply_has_the_fields_of_each_kind),
        cmocka_unit_test(reply_rejects_a_credential_that_needs_escaping),
        cmocka_unit_test(error_reply_has_status_message_and_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
