/* SPDX-License-Identifier: Apache-2.0 */
#include "answer.h"
#include "unit.h"
#include "util/clock.h"
#include <stdio.h>

static int read_it(int http, const char *type, const char *retry, const char *body, struct answer_outcome *out,
                   struct err *err)
{
    auto_json object = NULL;
    struct answer a = {
        .what = "get pods 'a/b'", .http = http, .type = str_of(type), .retry = str_of(retry), .body = str_of(body)};
    return answer_read(&a, &object, out, err);
}

static void reason_of_the_server_has_its_error_code(void **state)
{
    (void)state;
    static const struct {
        int http;
        const char *reason;
        enum err_code code;
    } cases[] = {
        {404, "NotFound", ERR_UNSUPPORTED},
        {409, "AlreadyExists", ERR_EXISTS},
        {409, "Conflict", ERR_CHANGED},
        {403, "Forbidden", ERR_DENIED},
        {401, "Unauthorized", ERR_DENIED},
        {410, "Expired", ERR_AGAIN},
        {410, "Gone", ERR_AGAIN},
        {422, "Invalid", ERR_INVALID},
        {400, "BadRequest", ERR_INVALID},
        {429, "TooManyRequests", ERR_AGAIN},
        {504, "Timeout", ERR_TIMEOUT},
        {500, "ServerTimeout", ERR_TIMEOUT},
        {500, "InternalError", ERR_AGAIN},
        {503, "ServiceUnavailable", ERR_AGAIN},
        {405, "MethodNotAllowed", ERR_UNSUPPORTED},
        {418, "Teapot", ERR_CORRUPT},
        {301, "", ERR_CORRUPT},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        char body[300];
        struct err err;
        struct answer_outcome out;
        snprintf(body, sizeof body, "{\"kind\":\"Status\",\"reason\":\"%s\",\"message\":\"it says so\",\"code\":%d}",
                 cases[i].reason, cases[i].http);
        assert_int_equal(read_it(cases[i].http, "application/json", NULL, body, &out, &err), -(int)cases[i].code);
        assert_string_equal(err.text, "cannot get pods 'a/b': it says so");
        assert_int_equal(out.is_expired, cases[i].http == 410);
        assert_int_equal(out.unknown_to_server, cases[i].http == 401);
        /* Without a Status, the HTTP status alone gives an error, too. */
        int alone = read_it(cases[i].http, "text/html", NULL, "<html>", &out, &err);
        assert_true(alone < 0);
    }
}

static void only_a_status_of_the_api_server_means_not_found(void **state)
{
    (void)state;
    struct answer_outcome out;
    struct err err;
    assert_int_equal(read_it(404, "application/json", NULL,
                             "{\"kind\":\"Status\",\"reason\":\"NotFound\",\"message\":\"pods \\\"b\\\" not found\","
                             "\"details\":{\"name\":\"b\",\"kind\":\"pods\"},\"code\":404}",
                             &out, &err),
                     -ERR_NOT_FOUND);
    /* A kind that is not installed, or not yet. */
    assert_int_equal(read_it(404, "application/json", NULL,
                             "{\"kind\":\"Status\",\"reason\":\"NotFound\",\"message\":\"the server could not find the "
                             "requested resource\",\"details\":{},\"code\":404}",
                             &out, &err),
                     -ERR_UNSUPPORTED);
    assert_int_equal(err.id, 5004);
    /* A load balancer without a backend. */
    assert_int_equal(read_it(404, "text/plain", NULL, "404 page not found\n", &out, &err), -ERR_UNSUPPORTED);
    assert_int_equal(read_it(404, "", NULL, "", &out, &err), -ERR_UNSUPPORTED);
}

static void retry_after_is_seconds_or_a_date_and_limited(void **state)
{
    (void)state;
    struct answer_outcome out;
    struct err err;
    assert_int_equal(read_it(429, "", "2", "", &out, &err), -ERR_AGAIN);
    assert_true(out.has_retry_after && out.retry_after_ns == 2 * NS_PER_SECOND);
    assert_int_equal(read_it(429, "", "99999999999", "", &out, &err), -ERR_AGAIN);
    assert_true(out.has_retry_after && out.retry_after_ns == 30 * NS_PER_SECOND);
    assert_int_equal(read_it(429, "", "Sat, 21 Nov 2020 09:30:00 GMT", "", &out, &err), -ERR_AGAIN);
    assert_true(out.has_retry_after && out.retry_after_ns == 0);
    assert_int_equal(read_it(429, "", "soon", "", &out, &err), -ERR_AGAIN);
    assert_false(out.has_retry_after);
    assert_int_equal(read_it(500, "", NULL, "", &out, &err), -ERR_AGAIN);
    assert_false(out.has_retry_after);
}

static void success_without_an_object_is_corrupt(void **state)
{
    (void)state;
    struct answer_outcome out;
    struct err err;
    assert_int_equal(read_it(200, "application/json", NULL, "{\"kind\":\"Pod\"}", &out, &err), 0);
    assert_int_equal(read_it(201, "Application/JSON; charset=utf-8", NULL, "{\"kind\":\"Pod\"}", &out, &err), 0);
    assert_int_equal(read_it(200, "text/html", NULL, "{\"kind\":\"Pod\"}", &out, &err), -ERR_CORRUPT);
    assert_int_equal(err.id, 5004);
    assert_int_equal(read_it(200, "application/jsonp", NULL, "{\"kind\":\"Pod\"}", &out, &err), -ERR_CORRUPT);
    assert_int_equal(read_it(200, "application/json", NULL, "{}", &out, &err), -ERR_CORRUPT);
    assert_int_equal(read_it(200, "application/json", NULL, "[]", &out, &err), -ERR_CORRUPT);
    assert_int_equal(read_it(200, "application/json", NULL, "", &out, &err), -ERR_CORRUPT);
}

static void an_error_within_a_watch_is_read_by_its_own_code(void **state)
{
    (void)state;
    struct answer_outcome out;
    struct err err;
    json *status;
    assert_int_equal(
        json_parse(STR("{\"code\":410,\"reason\":\"Expired\",\"message\":\"too old\"}"), "it", &status, &err), 0);
    assert_int_equal(answer_of_status("watch pods", status, &out, &err), -ERR_AGAIN);
    assert_true(out.is_expired);
    json_free(status);
    assert_int_equal(json_parse(STR("{\"code\":\"much\"}"), "it", &status, &err), 0);
    assert_int_equal(answer_of_status("watch pods", status, &out, &err), -ERR_CORRUPT);
    json_free(status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reason_of_the_server_has_its_error_code),
        cmocka_unit_test(only_a_status_of_the_api_server_means_not_found),
        cmocka_unit_test(retry_after_is_seconds_or_a_date_and_limited),
        cmocka_unit_test(success_without_an_object_is_corrupt),
        cmocka_unit_test(an_error_within_a_watch_is_read_by_its_own_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
