/* SPDX-License-Identifier: Apache-2.0 */
#include "io/web.h"
#include "tiny_server.h"
#include "unit.h"
#include "util/clock.h"
#include <semaphore.h>
#include <signal.h>
#include <sys/resource.h>

static struct tiny_server server;
static struct loop *loop;
static struct web *web;

/* One request and all that was told of it. */
struct call {
    struct mail mail;
    struct web_request request;
    struct web_job *job;
    sem_t over;

    struct sbuf body;
    unsigned heads;
    int head_status;
    char twice[16];
    bool inside; /* web_submit or web_cancel is on the stack */
    bool reentered;
    unsigned dones;
    struct web_result result;

    unsigned pause_at; /* the body call that answers WEB_PAUSE; 0: none */
    unsigned body_calls;
    int abort_head, abort_body;
    bool cancel_at_head;
    struct timer later;
    bool cancel_later, resume_later;
    const char *source; /* for body_read */
    size_t source_at, source_len;
    unsigned seeks;
};

static int head(void *ctx, struct web_job *j)
{
    struct call *c = ctx;
    c->heads++;
    c->reentered |= c->inside;
    c->head_status = web_status(j);
    struct str twice = web_reply_header(j, "x-tWICE");
    snprintf(c->twice, sizeof c->twice, "%.*s", STR_FMT(twice));
    if (c->cancel_at_head)
        web_cancel(j);
    return c->abort_head;
}

static int body(void *ctx, const char *bytes, size_t len)
{
    struct call *c = ctx;
    c->reentered |= c->inside;
    if (++c->body_calls == c->pause_at)
        return WEB_PAUSE;
    if (c->abort_body)
        return c->abort_body;
    sbuf_add(&c->body, (struct str){bytes, len});
    return 0;
}

static void done(void *ctx, const struct web_result *r)
{
    struct call *c = ctx;
    c->reentered |= c->inside;
    c->dones++;
    c->result = *r;
    loop_timer_cancel(loop, &c->later);
    sem_post(&c->over);
}

static ssize_t read_source(void *ctx, char *buf, size_t room)
{
    struct call *c = ctx;
    if (!c->source)
        return -1;
    size_t n = min_u64(room, c->source_len - c->source_at);
    memcpy(buf, c->source + c->source_at, n);
    c->source_at += n;
    return (ssize_t)n;
}

static int seek_source(void *ctx, uint64_t offset)
{
    struct call *c = ctx;
    c->source_at = offset;
    c->seeks++;
    return 0;
}

static void later(struct timer *t)
{
    struct call *c = container_of(t, struct call, later);
    c->inside = true;
    if (c->cancel_later)
        web_cancel(c->job);
    if (c->resume_later)
        web_resume(c->job);
    c->inside = false;
}

static void submit(struct mail *m)
{
    struct call *c = container_of(m, struct call, mail);
    c->inside = true;
    c->job = web_submit(web, &c->request);
    c->inside = false;
    if (c->cancel_later || c->resume_later)
        loop_timer_set(loop, &c->later, 50 * NS_PER_MS);
}

static void call_init(struct call *c, const char *method, const char *url)
{
    memset(c, 0, sizeof *c);
    sem_init(&c->over, 0, 0);
    sbuf_init(&c->body, 64 << 20);
    c->mail.deliver = submit;
    c->later.fire = later;
    c->request =
        (struct web_request){.method = method, .url = url, .ctx = c, .on_head = head, .on_body = body, .on_done = done};
}

static void call_start(struct call *c)
{
    loop_post(loop, &c->mail);
}

static void call_wait(struct call *c)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += 20;
    assert_int_equal(sem_timedwait(&c->over, &t), 0);
    assert_int_equal(c->dones, 1);
    assert_false(c->reentered);
}

static const char *url_of(const char *path)
{
    static char urls[8][600];
    static unsigned turn;
    char *url = urls[turn++ % 8];
    snprintf(url, sizeof urls[0], "http://127.0.0.1:%d%s", server.port, path);
    return url;
}

static void get(struct call *c, const char *path)
{
    call_init(c, "GET", url_of(path));
    call_start(c);
    call_wait(c);
}

static void assert_pattern(const struct sbuf *b, size_t len)
{
    assert_int_equal(b->len, len);
    for (size_t i = 0; i < len; i++)
        if (b->ptr[i] != (char)('a' + i % 26))
            fail_msg("byte %zu is wrong", i);
}

static void begin(uint64_t stall_ns)
{
    struct err err;
    struct web_options o = {.stall_timeout_ns = stall_ns, .connect_timeout_ns = NS_PER_SECOND};
    assert_int_equal(loop_new("loop/t", &loop, &err), 0);
    assert_int_equal(web_new(loop, &o, &web, &err), 0);
    assert_int_equal(loop_start(loop, &err), 0);
}

static int setup(void **state)
{
    (void)state;
    tiny_server_start(&server);
    begin(300 * NS_PER_MS);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    loop_stop_and_join(loop);
    web_free(web);
    loop_free(loop);
    tiny_server_stop(&server);
    return 0;
}

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

static void a_stall_is_a_timeout_wherever_it_comes(void **state)
{
    static const char *const places[] = {"/stall/0", "/stall/20", "/stall/80", "/stall/500"};
    (void)state;
    for (size_t i = 0; i < countof(places); i++) {
        struct call c;
        uint64_t before = clock_now_ns();
        get(&c, places[i]);
        assert_int_equal(c.result.code, -ERR_TIMEOUT);
        assert_in_range(clock_now_ns() - before, 300 * NS_PER_MS, 2000 * NS_PER_MS);
        sbuf_done(&c.body);
    }
}

static void a_slow_answer_is_no_stall(void **state)
{
    struct call c;
    (void)state;
    get(&c, "/slow/200");
    assert_int_equal(c.result.code, 0);
    assert_pattern(&c.body, 200);
    assert_true(c.result.total_ns > 400 * NS_PER_MS);
    sbuf_done(&c.body);
}

static void the_time_for_the_whole_ends_a_slow_answer(void **state)
{
    struct call c;
    (void)state;
    call_init(&c, "GET", url_of("/slow/5000"));
    c.request.timeout_ns = 400 * NS_PER_MS;
    call_start(&c);
    call_wait(&c);
    assert_int_equal(c.result.code, -ERR_TIMEOUT);
    assert_non_null(strstr(c.result.err.text, "whole request"));
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

static void steps_on_the_way_and_trailers_are_not_the_head(void **state)
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

static void a_compressed_body_arrives_as_it_is_stored(void **state)
{
    struct call c;
    (void)state;
    get(&c, "/raw/HTTP/1.1%20200%20OK%0d%0aContent-Encoding:%20gzip%0d%0aContent-Length:%203%0d%0a%0d%0aabc");
    assert_int_equal(c.result.code, 0);
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

static void what_cannot_start_is_told_to_on_done(void **state)
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
    struct rate rate = {.bytes_per_second = 2000000};
    char *bytes = tiny_pattern(1 << 20);
    get(&c, "/bytes/1"); /* so that no connecting is timed */
    sbuf_done(&c.body);
    for (int i = 0; i < 2; i++) {
        uint64_t before = clock_now_ns();
        rate.paid_until_ns = 0;
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
        assert_in_range(took, due - 135 * NS_PER_MS, due + 200 * NS_PER_MS);
        sbuf_done(&c.body);
    }
    free(bytes);
}

static void freeing_cancels_what_is_under_way(void **state)
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

static void without_descriptors_the_error_is_no_space(void **state)
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

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_answer_arrives_whole),
        TEST(the_last_value_of_a_header_counts),
        TEST(connections_are_kept),
        TEST(many_requests_run_at_once),
        TEST(a_connection_that_breaks_anywhere_is_an_io_error),
        TEST(a_server_that_closes_without_an_answer_is_an_io_error),
        TEST(a_stall_is_a_timeout_wherever_it_comes),
        TEST(a_slow_answer_is_no_stall),
        TEST(the_time_for_the_whole_ends_a_slow_answer),
        TEST(garbage_is_corrupt),
        TEST(an_answer_before_http_1_is_not_taken),
        TEST(steps_on_the_way_and_trailers_are_not_the_head),
        TEST(a_compressed_body_arrives_as_it_is_stored),
        TEST(a_redirect_is_an_answer_like_any_other),
        TEST(a_body_is_sent_from_memory),
        TEST(a_body_is_sent_from_a_reader),
        TEST(a_reader_that_fails_or_ends_early_stops_the_request),
        TEST(an_answer_before_the_body_was_sent_is_taken),
        TEST(headers_go_out_as_given),
        TEST(a_header_with_a_line_break_is_refused),
        TEST(head_has_no_body_and_leaves_the_handle_usable),
        TEST(what_cannot_start_is_told_to_on_done),
        TEST(a_refused_connection_names_host_and_reason_but_no_secret),
        TEST(a_host_without_an_address_is_an_io_error),
        TEST(a_cancelled_request_ends_as_cancelled_at_any_stage),
        TEST(a_callback_aborts_with_its_own_code),
        TEST(a_paused_body_goes_on_without_a_lost_byte),
        TEST(the_rate_cap_holds_in_both_directions),
        TEST(freeing_cancels_what_is_under_way),
        TEST(without_descriptors_the_error_is_no_space),
    };
    unsetenv("http_proxy");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
