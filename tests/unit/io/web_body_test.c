/* SPDX-License-Identifier: Apache-2.0 */
#include "web_call.h"

static void a_compressed_body_arrives_as_it_is_stored(void **state)
{
    struct call c;
    (void)state;
    get(&c, "/raw/HTTP/1.1%20200%20OK%0d%0aContent-Encoding:%20gzip%0d%0aContent-Length:%203%0d%0a%0d%0aabc");
    assert_int_equal(c.result.code, 0);
    assert_pattern(&c.body, 3);
    sbuf_done(&c.body);
}

static void a_body_is_sent_from_memory(void **state)
{
    struct call c;
    (void)state;
    char *bytes = tiny_pattern(3 << 20);
    for (int i = 0; i < 3; i++) {
        call_init(&c, i == 1 ? "POST" : "PUT", url_of("/echo"));
        c.request.body = bytes;
        c.request.body_len = i == 2 ? 0 : 3 << 20;
        call_start(&c);
        call_wait(&c);
        assert_int_equal(c.result.code, 0);
        assert_pattern(&c.body, c.request.body_len);
        sbuf_done(&c.body);
    }
    free(bytes);
}

static void a_body_is_sent_from_a_reader(void **state)
{
    struct call c;
    (void)state;
    char *bytes = tiny_pattern(1 << 20);
    call_init(&c, "PUT", url_of("/echo"));
    c.request.body_read = read_source;
    c.request.body_seek = seek_source;
    c.request.body_len = c.source_len = 1 << 20;
    c.source = bytes;
    call_start(&c);
    call_wait(&c);
    assert_int_equal(c.result.code, 0);
    assert_pattern(&c.body, 1 << 20);
    sbuf_done(&c.body);
    free(bytes);
}

/* The server closes a kept connection after it has read the request. */
static void a_request_that_may_be_sent_once_is_not_repeated_by_libcurl(void **state)
{
    (void)state;
    for (int once = 0; once < 2; once++) {
        struct call c;
        get(&c, "/bytes/10");
        sbuf_done(&c.body);
        unsigned before = server.requests;
        call_init(&c, "PUT", url_of("/nothing"));
        c.request.body = "abc";
        c.request.body_len = 3;
        c.request.once = once;
        call_start(&c);
        call_wait(&c);
        assert_int_equal(c.result.code, -ERR_IO);
        assert_int_equal(c.result.err.id, CIS_CONNECTION_LOST);
        assert_int_equal(server.requests - before, once ? 1 : 2);
        assert_int_equal(c.result.sends, once ? 1 : 2);
        sbuf_done(&c.body);
    }
}

static void a_reader_that_fails_or_ends_early_stops_the_request(void **state)
{
    struct call c;
    (void)state;
    for (int i = 0; i < 2; i++) {
        call_init(&c, "PUT", url_of("/echo"));
        c.request.body_read = read_source;
        c.request.body_len = 100000;
        c.source = i ? "abc" : NULL;
        c.source_len = 3;
        call_start(&c);
        call_wait(&c);
        assert_int_equal(c.result.code, -ERR_IO);
        sbuf_done(&c.body);
    }
}

static void an_answer_before_the_body_was_sent_is_taken(void **state)
{
    struct call c;
    (void)state;
    char *bytes = tiny_pattern(3 << 20);
    call_init(&c, "PUT", url_of("/early"));
    c.request.body = bytes;
    c.request.body_len = 3 << 20;
    call_start(&c);
    call_wait(&c);
    /* The server closes while we send: either its answer came through or the break was seen; never a hang. */
    assert_true(c.result.status == 404 || c.result.code == -ERR_IO);
    sbuf_done(&c.body);
    free(bytes);
}

static void a_paused_body_goes_on_without_a_lost_byte(void **state)
{
    struct call c;
    (void)state;
    for (unsigned at = 1; at < 12; at += 3) {
        call_init(&c, "GET", url_of("/bytes/400000"));
        c.pause_at = at;
        c.resume_later = true;
        call_start(&c);
        call_wait(&c);
        assert_int_equal(c.result.code, 0);
        assert_pattern(&c.body, 400000);
        sbuf_done(&c.body);
    }
}

static void the_rate_cap_holds_in_both_directions(void **state)
{
    struct call c;
    (void)state;
    struct rate rate = {.units_per_second = 2000000};
    char *bytes = tiny_pattern(1 << 20);
    get(&c, "/bytes/1"); /* so that no connecting is timed */
    sbuf_done(&c.body);
    for (int i = 0; i < 2; i++) {
        uint64_t before = clock_now_ns();
        rate.reserved_until_ns = 0;
        call_init(&c, i ? "PUT" : "GET", url_of(i ? "/echo" : "/bytes/1048576"));
        c.request.body = i ? bytes : NULL;
        c.request.body_len = i ? 1 << 20 : 0;
        c.request.rate = &rate;
        call_start(&c);
        call_wait(&c);
        uint64_t took = clock_now_ns() - before, due = (i ? 2 : 1) * 524 * NS_PER_MS - 100 * NS_PER_MS;
        assert_int_equal(c.result.code, 0);
        assert_pattern(&c.body, 1 << 20);
        /* The last chunk is not waited for: up to 256 KiB less. */
        assert_in_range(took, due - 135 * NS_PER_MS, due + 20 * NS_PER_SECOND);
        sbuf_done(&c.body);
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_compressed_body_arrives_as_it_is_stored),
        TEST(a_body_is_sent_from_memory),
        TEST(a_body_is_sent_from_a_reader),
        TEST(a_request_that_may_be_sent_once_is_not_repeated_by_libcurl),
        TEST(a_reader_that_fails_or_ends_early_stops_the_request),
        TEST(an_answer_before_the_body_was_sent_is_taken),
        TEST(a_paused_body_goes_on_without_a_lost_byte),
        TEST(the_rate_cap_holds_in_both_directions),
    };
    unsetenv("http_proxy");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
