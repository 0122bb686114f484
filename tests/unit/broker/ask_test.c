/* SPDX-License-Identifier: Apache-2.0 */
#include "ask.h"
#include "unit.h"
#include "util/clock.h"

static int parse(const char *body, struct ask *ret, struct err *err)
{
    return ask_parse(str_of(body), ret, err);
}

static void a_request_names_a_volume_and_what_for(void **state)
{
    (void)state;
    struct ask a;
    struct err err;
    assert_int_equal(parse("{\"volume\":\"pvc-1.x\",\"for\":\"hydrate\"}", &a, &err), 0);
    assert_string_equal(a.volume, "pvc-1.x");
    assert_false(a.is_export);
    assert_string_equal(a.scheme, "");
    assert_int_equal(
        parse("{\"volume\":\"v\",\"for\":\"export\",\"scheme\":\"gs\",\"refused\":\"0123456789abcdef\"}", &a, &err), 0);
    assert_true(a.is_export);
    assert_string_equal(a.scheme, "gs");
    assert_string_equal(a.refused, "0123456789abcdef");
}

static void everything_else_is_invalid(void **state)
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
    struct ask a;
    struct err err;
    (void)state;
    for (size_t i = 0; i < countof(bad); i++)
        assert_int_equal(parse(bad[i], &a, &err), -ERR_INVALID);
}

static void a_bearer_token_is_taken_from_its_header(void **state)
{
    (void)state;
    struct str token;
    struct err err;
    assert_int_equal(ask_token(STR("bearer  abc "), &token, &err), 0);
    assert_true(str_eq(token, STR("abc")));
    assert_int_equal(ask_token(STR("Basic abc"), &token, &err), -ERR_DENIED);
    assert_int_equal(ask_token(STR("Bearer "), &token, &err), -ERR_DENIED);
    assert_int_equal(ask_token(STR_NULL, &token, &err), -ERR_DENIED);
    assert_int_equal(err.id, 1902);
}

static void a_credential_is_written_as_its_store_wants_it(void **state)
{
    (void)state;
    struct err err;
    auto_identity key = identity_new();
    auto_identity token = identity_new();
    auto_identity nobody = identity_new();
    auto_sbuf b;
    sbuf_init(&b, 4096);
    key->access_key_id = str_dup(STR("AKIA"));
    key->secret = str_dup(STR("s/+="));
    token->bearer = str_dup(STR("Bearer ya29"));
    nobody->anonymous = true;
    key->expires_ns = token->expires_ns = nobody->expires_ns = 1800000000 * (int64_t)NS_PER_SECOND;
    assert_int_equal(answer_credential(&(struct grant_words){"s3", key, "irsa", "arn:x"}, &b, &err), 0);
    assert_string_equal(b.ptr, "{\"scheme\":\"s3\",\"expiresAt\":\"2027-01-15T08:00:00.000Z\",\"accessKeyID\":\"AKIA\","
                               "\"secretAccessKey\":\"s/+=\",\"method\":\"irsa\",\"principal\":\"arn:x\"}");
    sbuf_clear(&b);
    assert_int_equal(answer_credential(&(struct grant_words){"gs", token, "gke", "p"}, &b, &err), 0);
    assert_non_null(strstr(b.ptr, "\"accessToken\":\"ya29\""));
    sbuf_clear(&b);
    assert_int_equal(answer_credential(&(struct grant_words){"anonymous", nobody, "anonymous", "p"}, &b, &err), 0);
    assert_null(strstr(b.ptr, "access"));
}

static void a_credential_that_would_break_the_document_is_corrupt(void **state)
{
    (void)state;
    struct err err;
    auto_identity token = identity_new();
    auto_sbuf b;
    sbuf_init(&b, 4096);
    token->bearer = str_dup(STR("Bearer a\",\"scheme\":\"s3"));
    assert_int_equal(answer_credential(&(struct grant_words){"gs", token, "gke", "p"}, &b, &err), -ERR_CORRUPT);
    assert_null(strstr(err.text, "scheme"));
}

static void an_error_becomes_a_status_and_its_own_words(void **state)
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
            err_advise(&err, cases[i].id, "mend it");
        assert_int_equal(answer_error(&err, &b), cases[i].status);
        assert_non_null(strstr(b.ptr, "\"message\":\"it \\\"broke\\\"\""));
        assert_int_equal(strstr(b.ptr, "\"id\":") != NULL, cases[i].id != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_names_a_volume_and_what_for),
        cmocka_unit_test(everything_else_is_invalid),
        cmocka_unit_test(a_bearer_token_is_taken_from_its_header),
        cmocka_unit_test(a_credential_is_written_as_its_store_wants_it),
        cmocka_unit_test(a_credential_that_would_break_the_document_is_corrupt),
        cmocka_unit_test(an_error_becomes_a_status_and_its_own_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
