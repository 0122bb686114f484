/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "web_error.h"

static void assert_origin(const char *url, const char *origin)
{
    struct str s = web_origin(url);
    assert_int_equal(s.len, strlen(origin));
    assert_memory_equal(s.len ? s.ptr : "", origin, s.len);
}

static void an_origin_has_no_user_path_or_query(void **state)
{
    (void)state;
    assert_origin("https://bucket.s3.amazonaws.com/key?X-Amz-Signature=secret", "https://bucket.s3.amazonaws.com");
    assert_origin("http://user:secret@127.0.0.1:9000/bucket", "127.0.0.1:9000");
    assert_origin("http://[::1]:80?query", "http://[::1]:80");
    assert_origin("http://host#fragment", "http://host");
    assert_origin("no scheme at all", "no scheme at all");
    assert_origin("", "");
    assert_origin(NULL, "");
}

static void every_code_is_an_error_with_the_origin(void **state)
{
    (void)state;
    for (int code = 1; code < CURL_LAST; code++) {
        struct web_failure f = {.code = (CURLcode)code, .detail = "", .url = "http://host:1/secret"};
        struct err err = {0};
        int r = web_translate(&f, &err);
        assert_true(r < 0);
        assert_int_equal(r, -(int)err.code);
        assert_non_null(strstr(err.text, "'http://host:1'"));
        assert_null(strstr(err.text, "secret"));
    }
}

static void each_cause_has_its_own_code(void **state)
{
    static const struct {
        CURLcode code;
        bool connected;
        int sys;
        enum err_code means;
        unsigned id;
    } rows[] = {
        {CURLE_COULDNT_RESOLVE_HOST, false, 0, ERR_IO, 1611},
        {CURLE_COULDNT_CONNECT, false, ECONNREFUSED, ERR_IO, 1611},
        {CURLE_COULDNT_CONNECT, false, EMFILE, ERR_NO_SPACE, 1616},
        {CURLE_OPERATION_TIMEDOUT, true, 0, ERR_TIMEOUT, 1612},
        {CURLE_OUT_OF_MEMORY, true, 0, ERR_CORRUPT, 1615},
        {CURLE_OUT_OF_MEMORY, false, 0, ERR_NO_SPACE, 0},
        {CURLE_PEER_FAILED_VERIFICATION, true, 0, ERR_DENIED, 1613},
        {CURLE_RECV_ERROR, true, ECONNRESET, ERR_IO, 1614},
        {CURLE_WEIRD_SERVER_REPLY, true, 0, ERR_CORRUPT, 1615},
        {CURLE_UNSUPPORTED_PROTOCOL, false, 0, ERR_INVALID, 1611},
        {CURLE_UNSUPPORTED_PROTOCOL, true, 0, ERR_CORRUPT, 1615},
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct web_failure f = {
            .code = rows[i].code, .url = "http://h/", .sys = rows[i].sys, .connected = rows[i].connected};
        struct err err = {0};
        assert_int_equal(web_translate(&f, &err), -(int)rows[i].means);
        assert_int_equal(err.id, rows[i].id);
        assert_int_equal(err.sys, rows[i].sys);
    }
}

static void system_message_is_appended_if_there_is_one(void **state)
{
    (void)state;
    struct err err = {0};
    struct web_failure f = {
        .code = CURLE_COULDNT_CONNECT, .detail = "libcurl's own", .url = "http://h/", .sys = ECONNREFUSED};
    web_translate(&f, &err);
    assert_string_equal(err.text, "cannot connect to 'http://h': Connection refused");
    f.sys = 0;
    web_translate(&f, &err);
    assert_string_equal(err.text, "cannot connect to 'http://h': libcurl's own");
}

static void failed_connection_names_the_variables_of_a_proxy(void **state)
{
    (void)state;
    struct err err = {0};
    struct web_failure f = {.code = CURLE_COULDNT_CONNECT, .url = "http://h/", .sys = ECONNREFUSED, .has_proxy = true};
    web_translate(&f, &err);
    assert_string_equal(err.text, "cannot connect to 'http://h': Connection refused"
                                  " (http_proxy, https_proxy or all_proxy is set)");
}

static void name_that_is_not_found_in_time_is_not_a_timeout_of_the_store(void **state)
{
    (void)state;
    static const char *const details[] = {"Resolving timed out after 10001 milliseconds", "Could not resolve host: h"};
    for (size_t i = 0; i < countof(details); i++) {
        struct err err = {0};
        struct web_failure f = {.code = CURLE_OPERATION_TIMEDOUT, .detail = details[i], .url = "http://h/"};
        assert_int_equal(web_translate(&f, &err), -ERR_IO);
        assert_int_equal(err.id, CIS_STORE_UNREACHABLE);
        assert_string_equal(err.text, "cannot find the address of 'http://h': the name service did not answer in time");
    }
}

static void server_without_tls_is_a_permanent_error_and_a_cut_handshake_a_temporary_one(void **state)
{
    (void)state;
    struct err err;
    struct web_failure f = {.code = CURLE_SSL_CONNECT_ERROR, .url = "https://h/", .connected = true};
    f.detail = "TLS connect error: error:0A00010B:SSL routines::wrong version number";
    assert_int_equal(web_translate(&f, &err), -ERR_INVALID);
    assert_int_equal(err.id, CIS_ENDPOINT_WITHOUT_TLS);
    assert_non_null(strstr(err.text, "'https://h' does not use TLS"));
    f.detail = "TLS connect error: error:0A000126:SSL routines::unexpected eof while reading";
    assert_int_equal(web_translate(&f, &err), -ERR_IO);
}

static void the_subject_of_a_certificate_is_not_named(void **state)
{
    (void)state;
    struct err err;
    const struct web_failure f = {
        .code = CURLE_PEER_FAILED_VERIFICATION,
        .url = "https://host:1/",
        .detail = "SSL: certificate subject name (db.internal) does not match target host name 'host'",
        .connected = true};
    web_translate(&f, &err);
    assert_null(strstr(err.text, "internal"));
    assert_non_null(strstr(err.text, "does not match target host name 'host'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_origin_has_no_user_path_or_query),
        cmocka_unit_test(every_code_is_an_error_with_the_origin),
        cmocka_unit_test(each_cause_has_its_own_code),
        cmocka_unit_test(system_message_is_appended_if_there_is_one),
        cmocka_unit_test(failed_connection_names_the_variables_of_a_proxy),
        cmocka_unit_test(name_that_is_not_found_in_time_is_not_a_timeout_of_the_store),
        cmocka_unit_test(server_without_tls_is_a_permanent_error_and_a_cut_handshake_a_temporary_one),
        cmocka_unit_test(the_subject_of_a_certificate_is_not_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
