/* SPDX-License-Identifier: Apache-2.0 */
#include "io/guard.h"
#include "web_call.h"
#include <signal.h>
#include <sys/resource.h>

static void an_answer_arrives_whole(void **state)
{
    struct call c;
    (void)state;
    get(&c, "/bytes/300000");
    assert_int_equal(c.result.code, 0);
    assert_int_equal(c.result.status, 200);
    assert_int_equal(c.head_status, 200);
    assert_int_equal(c.heads, 1);
    assert_int_equal(c.result.body_bytes, 300000);
    assert_pattern(&c.body, 300000);
    sbuf_done(&c.body);
}

static void the_last_value_of_a_header_counts(void **state)
{
    struct call c;
    (void)state;
    get(&c, "/bytes/0");
    assert_string_equal(c.twice, "two");
    assert_int_equal(c.body.len, 0);
    sbuf_done(&c.body);
}

static void connections_are_kept(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct call c;
        get(&c, "/bytes/1000");
        assert_int_equal(c.result.code, 0);
        sbuf_done(&c.body);
    }
    assert_int_equal(server.requests, 20);
    assert_int_equal(server.connections, 1);
}

static void idle_connections_above_the_limit_are_closed(void **state)
{
    enum { N = 6, KEPT = 2 };
    struct call calls[N];
    (void)state;
    for (int i = 0; i < N; i++) {
        call_init(&calls[i], "GET", url_of("/slow/15"));
        call_start(&calls[i]);
    }
    for (int i = 0; i < N; i++) {
        call_wait(&calls[i]);
        assert_int_equal(calls[i].result.code, 0);
        sbuf_done(&calls[i].body);
    }
    assert_int_equal(web_connects(web).connections, N);
    loop_stop_and_join(loop);
    web_set_idle_max(web, KEPT);
    struct err err;
    assert_int_equal(loop_start(loop, &err), 0);
    for (int left = 1000; atomic_load(&server.open) > KEPT && left > 0; left--)
        usleep(10000);
    assert_int_equal(server.open, KEPT);
    for (int i = 0; i < 3; i++) { /* those that are left are used */
        struct call c;
        get(&c, "/bytes/1000");
        assert_int_equal(c.result.code, 0);
        sbuf_done(&c.body);
    }
    assert_int_equal(web_connects(web).connections, N);
    assert_int_equal(web_connects(web).turned_away, 0);
}

static void paused_connection_is_not_idle(void **state)
{
    struct call c;
    struct err err;
    (void)state;
    call_init(&c, "GET", url_of("/bytes/300000"));
    c.pause_at = 2;
    call_start(&c);
    while (!atomic_load(&server.requests) || c.body_calls < 2)
        usleep(1000);
    loop_stop_and_join(loop);
    web_set_idle_max(web, 0);
    web_resume(c.job);
    assert_int_equal(loop_start(loop, &err), 0);
    call_wait(&c);
    assert_int_equal(c.result.code, 0);
    assert_pattern(&c.body, 300000);
    sbuf_done(&c.body);
}

static void only_refused_connections_count_as_turned_away(void **state)
{
    struct call c;
    (void)state;
    get(&c, "/drop"); /* was read */
    assert_true(c.result.code == -ERR_IO && c.result.closed && !c.result.turned_away);
    get(&c, "/bytes/10");
    assert_true(c.result.code == 0 && !c.result.turned_away);
    sbuf_done(&c.body);
    get(&c, "/cut/40");
    assert_true(c.result.code == -ERR_IO && !c.result.turned_away);
    sbuf_done(&c.body);
    call_init(&c, "GET", "http://127.0.0.1:1/");
    call_start(&c);
    call_wait(&c);
    assert_true(c.result.code == -ERR_IO && c.result.turned_away);
    assert_int_equal(web_connects(web).turned_away, 1);
}

static void many_requests_run_at_once(void **state)
{
    (void)state;
    enum { N = 100 };
    struct call *calls = calloc(N, sizeof *calls);
    const char *url = url_of("/bytes/100000");
    for (int i = 0; i < N; i++) {
        call_init(&calls[i], "GET", url);
        call_start(&calls[i]);
    }
    for (int i = 0; i < N; i++) {
        call_wait(&calls[i]);
        assert_int_equal(calls[i].result.code, 0);
        assert_pattern(&calls[i].body, 100000);
        sbuf_done(&calls[i].body);
    }
    assert_int_equal(server.requests, N);
    free(calls);
}

/* At every place in the head and at several in the body. */
static void a_connection_that_breaks_anywhere_is_an_io_error(void **state)
{
    (void)state;
    for (int at = 0; at < 1072; at += at < 90 ? 6 : 97) {
        static const char *const ways[] = {"reset", "cut"};
        for (int way = 0; way < 2; way++) {
            char path[64];
            struct call c;
            snprintf(path, sizeof path, "/%s/%d", ways[way], at);
            get(&c, path);
            if (c.result.code != -ERR_IO)
                fail_msg("%s: %s: %s", path, err_code_name((enum err_code) - c.result.code), c.result.err.text);
            assert_non_null(strstr(c.result.err.text, "'http://127.0.0.1:"));
            sbuf_done(&c.body);
        }
    }
}

static void a_server_that_closes_without_an_answer_is_an_io_error(void **state)
{
    struct call c;
    (void)state;
    get(&c, "/drop");
    assert_int_equal(c.result.code, -ERR_IO);
    assert_int_equal(c.result.status, 0);
    assert_non_null(strstr(c.result.err.text, "closed the connection without an answer"));
}

static void stall_at_any_stage_is_a_timeout(void **state)
{
    static const char *const places[] = {"/stall/0", "/stall/20", "/stall/80", "/stall/500"};
    (void)state;
    for (size_t i = 0; i < countof(places); i++) {
        struct call c;
        uint64_t before = clock_now_ns();
        get(&c, places[i]);
        assert_int_equal(c.result.code, -ERR_TIMEOUT);
        assert_in_range(clock_now_ns() - before, 300 * NS_PER_MS, 10 * NS_PER_SECOND);
        sbuf_done(&c.body);
    }
}

static void request_with_a_longer_stall_timeout_stalls_later(void **state)
{
    (void)state;
    struct call c;
    call_init(&c, "GET", url_of("/stall/70"));
    c.request.stall_timeout_ns = 900 * NS_PER_MS; /* three times as long as the others */
    uint64_t start = clock_now_ns();
    call_start(&c);
    call_wait(&c);
    assert_int_equal(c.result.code, -ERR_TIMEOUT);
    assert_true(clock_now_ns() - start >= 900 * NS_PER_MS);
    sbuf_done(&c.body);
}

static void stall_timeout_excludes_time_in_which_the_loop_did_not_run(void **state)
{
    struct call c;
    struct err err;
    (void)state;
    call_init(&c, "GET", url_of("/stall/70"));
    c.request.stall_timeout_ns = 900 * NS_PER_MS;
    uint64_t ran_ns = 0, start = clock_now_ns();
    call_start(&c);
    while (!atomic_load(&server.requests))
        usleep(1000);
    loop_stop_and_join(loop);
    ran_ns += clock_now_ns() - start;
    usleep(1500000);
    start = clock_now_ns();
    assert_int_equal(loop_start(loop, &err), 0);
    call_wait(&c);
    ran_ns += clock_now_ns() - start;
    assert_int_equal(c.result.code, -ERR_TIMEOUT);
    assert_true(ran_ns >= 800 * NS_PER_MS); /* the check for stalls runs each 75 ms */
    sbuf_done(&c.body);
}

static void slow_reply_does_not_stall(void **state)
{
    struct call c;
    (void)state;
    call_init(&c, "GET", url_of("/slow/200"));     /* takes four seconds at least */
    c.request.stall_timeout_ns = 3500 * NS_PER_MS; /* a thread may wait a second or two for a busy machine */
    call_start(&c);
    call_wait(&c);
    assert_int_equal(c.result.code, 0);
    assert_pattern(&c.body, 200);
    assert_true(c.result.total_ns > c.request.stall_timeout_ns);
    sbuf_done(&c.body);
}

static void too_few_bytes_in_time_are_a_stall(void **state)
{
    (void)state;
    struct call c;
    call_init(&c, "GET", url_of("/slow/500")); /* 15 bytes in the stall timeout */
    c.request.stall_bytes = 1000;
    call_start(&c);
    call_wait(&c);
    assert_int_equal(c.result.code, -ERR_TIMEOUT);
    assert_non_null(strstr(c.result.err.text, "too few bytes"));
    sbuf_done(&c.body);
}

static void endless_head_or_trailers_are_a_stall(void **state)
{
    static const char *const places[] = {"/hints", "/lines", "/trailers"};
    (void)state;
    for (size_t i = 0; i < countof(places); i++) {
        struct call c;
        get(&c, places[i]);
        assert_int_equal(c.result.code, -ERR_TIMEOUT);
        sbuf_done(&c.body);
    }
}

static void timeout_of_the_whole_ends_a_slow_reply(void **state)
{
    struct call c;
    (void)state;
    call_init(&c, "GET", url_of("/slow/500"));
    c.request.timeout_ns = 400 * NS_PER_MS;
    call_start(&c);
    call_wait(&c);
    assert_int_equal(c.result.code, -ERR_TIMEOUT);
    assert_non_null(strstr(c.result.err.text, "longer than its timeout"));
    sbuf_done(&c.body);
}

static void garbage_is_corrupt(void **state)
{
    static const char *const paths[] = {
        "/raw/hello%0d%0a%0d%0a", "/raw/%00%01%02%03%04%05%06%07%0a",
        "/raw/HTTP/1.1%20200%20OK%0d%0aContent-Length:%20-5%0d%0a%0d%0a",
        "/raw/HTTP/1.1%20200%20OK%0d%0aTransfer-Encoding:%20chunked%0d%0a%0d%0azz%0d%0a"};
    (void)state;
    for (size_t i = 0; i < countof(paths); i++) {
        struct call c;
        get(&c, paths[i]);
        if (c.result.code != -ERR_CORRUPT && c.result.code != -ERR_IO)
            fail_msg("%s: %d %s", paths[i], c.result.code, c.result.err.text);
        sbuf_done(&c.body);
    }
}

static void an_answer_before_http_1_is_not_taken(void **state)
{
    struct call c;
    (void)state;
    get(&c, "/raw/just%20bytes");
    assert_int_equal(c.result.code, -ERR_CORRUPT);
    assert_non_null(strstr(c.result.err.text, "is not HTTP"));
}

static void head_that_begins_with_a_blank_is_separate_from_the_previous(void **state)
{
    struct call c;
    (void)state;
    for (int i = 0; i < 3; i++) {
        get(&c, "/bytes/10");
        assert_int_equal(c.result.code, 0);
        sbuf_done(&c.body);
        get(&c, "/raw/HTTP/1.1%20200%20OK%0d%0a%20X-Twice:%20x%0d%0aContent-Length:%202%0d%0a%0d%0aab");
        assert_true(c.result.code == 0 || c.result.code == -ERR_IO); /* as this libcurl has it */
        sbuf_done(&c.body);
    }
}

static void interim_replies_and_trailers_are_not_the_head(void **state)
{
    struct call c;
    (void)state;
    get(&c, "/raw/HTTP/1.1%20100%20Continue%0d%0a%0d%0aHTTP/1.1%20206%20P%0d%0aX-Twice:%20x%0d%0a"
            "Transfer-Encoding:%20chunked%0d%0a%0d%0a3%0d%0aabc%0d%0a0%0d%0aX-Late:%20y%0d%0a%0d%0a");
    assert_int_equal(c.result.code, 0);
    assert_int_equal(c.heads, 1);
    assert_int_equal(c.head_status, 206);
    assert_string_equal(c.twice, "x");
    assert_pattern(&c.body, 3);
    sbuf_done(&c.body);
}

static void a_redirect_is_an_answer_like_any_other(void **state)
{
    struct call c;
    (void)state;
    get(&c, "/raw/HTTP/1.1%20307%20Go%0d%0aLocation:%20http://127.0.0.1:1/%0d%0aContent-Length:%200%0d%0a%0d%0a");
    assert_int_equal(c.result.code, 0);
    assert_int_equal(c.result.status, 307);
    assert_int_equal(server.requests, 1);
}

static void headers_go_out_as_given(void **state)
{
    struct call c;
    (void)state;
    struct web_header headers[] = {{"Range", STR("bytes=1-2")}, {"X-Empty", STR("")}, {"Accept-Encoding", STR("gzip")}};
    call_init(&c, "DELETE", url_of("/headers?x=%2F"));
    c.request.headers = headers;
    c.request.header_count = countof(headers);
    call_start(&c);
    call_wait(&c);
    assert_int_equal(c.result.code, 0);
    assert_memory_equal(c.body.ptr, "DELETE /headers?x=%2F HTTP/1.1\r\n", 32);
    assert_non_null(strstr(c.body.ptr, "\r\nRange: bytes=1-2\r\n"));
    assert_non_null(strstr(c.body.ptr, "\r\nX-Empty:\r\n"));
    assert_non_null(strstr(c.body.ptr, "\r\nAccept-Encoding: gzip\r\n"));
    assert_null(strstr(c.body.ptr, "Expect"));
    sbuf_done(&c.body);

    /* Nothing of it is left for the next request on the same handle. */
    get(&c, "/headers");
    assert_memory_equal(c.body.ptr, "GET ", 4);
    assert_null(strstr(c.body.ptr, "Range"));
    sbuf_done(&c.body);
}

static void a_header_with_a_line_break_is_refused(void **state)
{
    struct call c;
    (void)state;
    struct web_header bad = {"X-Key", STR("a\r\nHost: evil")};
    call_init(&c, "GET", url_of("/headers"));
    c.request.headers = &bad;
    c.request.header_count = 1;
    call_start(&c);
    call_wait(&c);
    assert_int_equal(c.result.code, -ERR_INVALID);
    assert_int_equal(server.requests, 0);
}

static void head_has_no_body_and_leaves_the_handle_usable(void **state)
{
    struct call c;
    (void)state;
    call_init(&c, "HEAD", url_of("/raw/HTTP/1.1%20200%20OK%0d%0aContent-Length:%201000%0d%0a%0d%0a"));
    call_start(&c);
    call_wait(&c);
    assert_int_equal(c.result.code, 0);
    assert_int_equal(c.body.len, 0);
    get(&c, "/bytes/1000");
    assert_pattern(&c.body, 1000);
    sbuf_done(&c.body);
}

static void on_done_gets_an_error_that_prevents_the_start(void **state)
{
    static const char *const urls[] = {"ftp://127.0.0.1/x", "http://[::::]/", "", "http://127.0.0.1:99999/"};
    (void)state;
    for (size_t i = 0; i < countof(urls); i++) {
        struct call c;
        call_init(&c, "GET", urls[i]);
        call_start(&c);
        call_wait(&c);
        assert_int_equal(c.result.code, -ERR_INVALID);
    }
}

static void a_refused_connection_names_host_and_reason_but_no_secret(void **state)
{
    struct call c;
    (void)state;
    call_init(&c, "GET", "http://user:secret@127.0.0.1:1/key?X-Amz-Signature=secret");
    call_start(&c);
    call_wait(&c);
    assert_int_equal(c.result.code, -ERR_IO);
    assert_non_null(strstr(c.result.err.text, "cannot connect to '127.0.0.1:1': Connection refused"));
    assert_null(strstr(c.result.err.text, "secret"));
}

static void a_host_without_an_address_is_an_io_error(void **state)
{
    struct call c;
    (void)state;
    call_init(&c, "GET", "http://no-such-host.invalid/");
    call_start(&c);
    call_wait(&c);
    assert_int_equal(c.result.code, -ERR_IO);
    assert_non_null(strstr(c.result.err.text, "cannot find the address"));
}

static void connect_to_applies_to_one_request_only(void **state)
{
    struct call c;
    char there[32];
    (void)state;
    snprintf(there, sizeof there, "127.0.0.1:%u", server.port);
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    call_init(&c, "GET", "http://nowhere.invalid/bytes/7");
    c.request.connect_to = there;
    call_start(&c);
    call_wait(&c);
    unsetenv("http_proxy");
    assert_int_equal(c.result.code, 0);
    assert_int_equal(c.result.body_bytes, 7);
    sbuf_done(&c.body);
    get(&c, "/bytes/8"); /* on the same handle */
    assert_int_equal(c.result.body_bytes, 8);
    sbuf_done(&c.body);
    call_init(&c, "GET", "http://nowhere.invalid/bytes/7");
    call_start(&c);
    call_wait(&c);
    assert_int_equal(c.result.code, -ERR_IO);
    sbuf_done(&c.body);
}

static void a_cancelled_request_ends_as_cancelled_at_any_stage(void **state)
{
    struct call c;
    (void)state;
    call_init(&c, "GET", url_of("/stall/500"));
    c.cancel_later = true;
    call_start(&c);
    call_wait(&c);
    assert_int_equal(c.result.code, -ERR_CANCELLED);
    sbuf_done(&c.body);

    call_init(&c, "GET", url_of("/bytes/1000000"));
    c.cancel_at_head = true;
    call_start(&c);
    call_wait(&c);
    assert_int_equal(c.result.code, -ERR_CANCELLED);
    assert_int_equal(c.body_calls, 0);
}

static void a_callback_aborts_with_its_own_code(void **state)
{
    struct call c;
    (void)state;
    call_init(&c, "GET", url_of("/bytes/1000000"));
    c.abort_head = -ERR_CHANGED;
    call_start(&c);
    call_wait(&c);
    assert_int_equal(c.result.code, -ERR_CHANGED);
    call_init(&c, "GET", url_of("/bytes/1000000"));
    c.abort_body = -ERR_NO_SPACE;
    call_start(&c);
    call_wait(&c);
    assert_int_equal(c.result.code, -ERR_NO_SPACE);
    assert_int_equal(c.body_calls, 1);
}

static void every_connection_is_checked_by_the_guard(void **state)
{
    struct call c;
    struct err err;
    struct sockaddr_in other = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof other;
    char rule[64], url[64];
    auto_guard guard = NULL;
    auto_fd fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&other, sizeof other), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&other, &len), 0);
    teardown(state);
    tiny_server_start(&server);
    snprintf(rule, sizeof rule, "allow 127.0.0.1:%d", server.port);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", ntohs(other.sin_port));
    assert_int_equal(guard_parse(str_of(rule), &guard, &err), 0);
    begin_guarded(20 * NS_PER_SECOND, guard);
    for (int i = 0; i < 2; i++) {
        get(&c, "/bytes/10");
        assert_int_equal(c.result.code, 0);
        sbuf_done(&c.body);
        call_init(&c, "GET", url);
        call_start(&c);
        call_wait(&c);
        assert_int_equal(c.result.code, -ERR_DENIED);
        sbuf_done(&c.body);
    }
    assert_int_equal(accept(fd, NULL, NULL), -1);
    assert_int_equal(errno, EAGAIN);
    teardown(state);
    setup(state); /* for the end of the test: the guard ends before */
}

static void web_free_cancels_running_jobs(void **state)
{
    struct call calls[3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        call_init(&calls[i], "GET", url_of("/stall/500"));
        call_start(&calls[i]);
    }
    usleep(50000);
    loop_stop_and_join(loop);
    web_free(web);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(calls[i].dones, 1);
        assert_int_equal(calls[i].result.code, -ERR_CANCELLED);
        sbuf_done(&calls[i].body);
    }
    loop_free(loop);
    begin(NS_PER_SECOND);
}

static void missing_descriptors_are_reported_as_no_space(void **state)
{
    struct call c;
    struct rlimit before, none;
    (void)state;
    getrlimit(RLIMIT_NOFILE, &before);
    none = (struct rlimit){.rlim_cur = 4, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    get(&c, "/bytes/1");
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(c.result.code, -ERR_NO_SPACE);
    assert_non_null(strstr(c.result.err.text, "Too many open files"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_answer_arrives_whole),
        TEST(the_last_value_of_a_header_counts),
        TEST(head_that_begins_with_a_blank_is_separate_from_the_previous),
        TEST(connections_are_kept),
        TEST(idle_connections_above_the_limit_are_closed),
        TEST(paused_connection_is_not_idle),
        TEST(only_refused_connections_count_as_turned_away),
        TEST(many_requests_run_at_once),
        TEST(a_connection_that_breaks_anywhere_is_an_io_error),
        TEST(a_server_that_closes_without_an_answer_is_an_io_error),
        TEST_IMPATIENT(stall_at_any_stage_is_a_timeout),
        TEST_IMPATIENT(request_with_a_longer_stall_timeout_stalls_later),
        TEST_IMPATIENT(stall_timeout_excludes_time_in_which_the_loop_did_not_run),
        TEST_IMPATIENT(too_few_bytes_in_time_are_a_stall),
        TEST_IMPATIENT(slow_reply_does_not_stall),
        TEST_IMPATIENT(endless_head_or_trailers_are_a_stall),
        TEST(timeout_of_the_whole_ends_a_slow_reply),
        TEST(garbage_is_corrupt),
        TEST(an_answer_before_http_1_is_not_taken),
        TEST(interim_replies_and_trailers_are_not_the_head),
        TEST(a_redirect_is_an_answer_like_any_other),
        TEST(headers_go_out_as_given),
        TEST(a_header_with_a_line_break_is_refused),
        TEST(head_has_no_body_and_leaves_the_handle_usable),
        TEST(on_done_gets_an_error_that_prevents_the_start),
        TEST(a_refused_connection_names_host_and_reason_but_no_secret),
        TEST(a_host_without_an_address_is_an_io_error),
        TEST(connect_to_applies_to_one_request_only),
        TEST(a_cancelled_request_ends_as_cancelled_at_any_stage),
        TEST(a_callback_aborts_with_its_own_code),
        TEST(every_connection_is_checked_by_the_guard),
        TEST(web_free_cancels_running_jobs),
        TEST(missing_descriptors_are_reported_as_no_space),
    };
    unsetenv("http_proxy");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
