/* SPDX-License-Identifier: Apache-2.0 */
#include "connected.h"

#include "http/http_server.h"
#include "util/clock.h"
#include "util/metric.h"
#include <arpa/inet.h>
#include <stdio.h>

static bool healthy = true;

static bool is_healthy(void *ctx, struct sbuf *why)
{
    assert_string_equal(ctx, "the context");
    if (!healthy)
        sbuf_adds(why, "the disk is gone");
    return healthy;
}

static void status(void *ctx, struct sbuf *json)
{
    assert_string_equal(ctx, "the context");
    sbuf_adds(json, "{\"volumes\":[]}");
}

static void more_metrics(void *ctx, struct sbuf *text)
{
    assert_string_equal(ctx, "the context");
    sbuf_adds(text, "one_more 1\n");
}

static struct http_server *started(const char *listen)
{
    struct http_server *s = NULL;
    struct err err;
    struct http_server_options o = {listen, (void *)"the context", is_healthy, more_metrics, status, 1};
    if (http_server_start(&o, &s, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_not_equal(http_server_port(s), 0);
    return s;
}

/* Everything that comes until the server closes. */
static void read_to_end(int fd, char *reply, size_t room)
{
    size_t n = 0;
    for (ssize_t got; n + 1 < room && (got = recv(fd, reply + n, room - n - 1, 0)) > 0;)
        n += (size_t)got;
    reply[n] = '\0';
}

static const char *ask(const struct http_server *s, const char *method, const char *path)
{
    static char reply[1 << 20];
    char request[256];
    auto_fd fd = connected(http_server_port(s));
    int n = snprintf(request, sizeof request, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", method, path);
    assert_int_equal(send(fd, request, (size_t)n, MSG_NOSIGNAL), n);
    read_to_end(fd, reply, sizeof reply);
    return reply;
}

static bool answers(const char *reply, const char *status_code, const char *body)
{
    const char *end = strstr(reply, "\r\n\r\n");
    return strncmp(reply, "HTTP/1.1 ", 9) == 0 && strncmp(reply + 9, status_code, 3) == 0 && end &&
           strstr(end + 4, body);
}

static void metrics_are_the_page_of_all_families(void **state)
{
    (void)state;
    auto_http_server s = started("127.0.0.1:0");
    metric_add(metric_series(metric_new(METRIC_COUNTER, "t_asked_total", "Asked.", "", NULL)), 7);
    const char *reply = ask(s, "GET", "/metrics");
    assert_true(answers(reply, "200", "\nt_asked_total 7\n"));
    assert_true(answers(reply, "200", "\none_more 1\n"));
    assert_non_null(strstr(reply, "Content-Type: text/plain; version=0.0.4"));
}

static void health_is_ok_or_has_the_cause(void **state)
{
    (void)state;
    auto_http_server s = started("127.0.0.1:0");
    assert_true(answers(ask(s, "GET", "/healthz"), "200", "ok\n"));
    healthy = false;
    assert_true(answers(ask(s, "GET", "/healthz"), "503", "the disk is gone\n"));
    healthy = true;
}

static void status_is_the_document_of_the_program(void **state)
{
    (void)state;
    auto_http_server s = started("127.0.0.1:0");
    assert_true(answers(ask(s, "GET", "/status"), "200", "{\"volumes\":[]}\n"));
}

static void head_has_no_body_and_other_methods_are_refused(void **state)
{
    (void)state;
    auto_http_server s = started("127.0.0.1:0");
    const char *reply = ask(s, "HEAD", "/healthz");
    assert_true(answers(reply, "200", ""));
    assert_null(strstr(reply, "ok\n"));
    assert_true(answers(ask(s, "POST", "/healthz"), "405", "GET and HEAD"));
    assert_true(answers(ask(s, "GET", "/etc/passwd"), "404", "/metrics"));
    assert_true(answers(ask(s, "GET", "/healthz/../status"), "404", "/metrics"));
}

static void garbage_and_endless_headers_leave_the_server_running(void **state)
{
    (void)state;
    static char reply[65536], endless[200000];
    auto_http_server s = started("127.0.0.1:0");
    auto_fd noise = connected(http_server_port(s));
    assert_true(send(noise, "\x16\x03\x01\x02\x00\xff\xff\r\n\r\n", 11, MSG_NOSIGNAL) > 0);
    auto_fd fd = connected(http_server_port(s));
    memset(endless, 'a', sizeof endless);
    memcpy(endless, "GET / HTTP/1.1\r\nX: ", 19);
    send(fd, endless, sizeof endless, MSG_NOSIGNAL);
    read_to_end(fd, reply, sizeof reply);
    assert_true(reply[0] == '\0' || strstr(reply, " 4") != NULL);
    assert_true(answers(ask(s, "GET", "/healthz"), "200", "ok\n"));
}

static void silent_client_is_disconnected_and_makes_room(void **state)
{
    (void)state;
    enum { CROWD = 40 };
    auto_http_server s = started("127.0.0.1:0");
    int silent[CROWD];
    for (unsigned i = 0; i < CROWD; i++)
        silent[i] = connected(http_server_port(s));
    uint64_t start = clock_now_ns();
    char byte;
    assert_int_equal(recv(silent[0], &byte, 1, 0), 0);
    assert_true(clock_now_ns() - start > NS_PER_SECOND / 2);
    for (unsigned i = 1; i < CROWD; i++)
        assert_true(recv(silent[i], &byte, 1, 0) <= 0);
    /* A connection counts for a moment after its client saw the end. */
    for (int i = 0; i < 1000 && !answers(ask(s, "GET", "/healthz"), "200", "ok\n"); i++)
        usleep(10000);
    assert_true(answers(ask(s, "GET", "/healthz"), "200", "ok\n"));
    for (unsigned i = 0; i < CROWD; i++)
        close(silent[i]);
}

enum { CROWD_MAX = 320 };

/* Connections from so many addresses, each kept open byte by byte, do not delay the probe of another address. */
static void probe_is_answered_beside(unsigned addresses, unsigned each)
{
    auto_http_server s = started("127.0.0.1:0");
    int fds[CROWD_MAX];
    unsigned crowd = addresses * each;
    assert_true(crowd <= CROWD_MAX);
    for (unsigned i = 0; i < crowd; i++)
        fds[i] = connected_from(INADDR_LOOPBACK + 1 + i / each, http_server_port(s));
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < crowd; i++)
            (void)!send(fds[i], "G", 1, MSG_NOSIGNAL);
        uint64_t start = clock_now_ns();
        assert_true(answers(ask(s, "GET", "/healthz"), "200", "ok\n"));
        assert_true(clock_now_ns() - start < 5 * NS_PER_SECOND); /* a silent connection may last ten */
        clock_sleep(NS_PER_SECOND / 2);
    }
    for (unsigned i = 0; i < crowd; i++)
        close(fds[i]);
}

/* A pod that keeps its connections open must not make the kubelet's probe fail: that would end the driver. */
static void one_address_cannot_take_the_room_of_another(void **state)
{
    (void)state;
    probe_is_answered_beside(1, 200);
}

/* Each address has as many connections as it may. */
static void many_addresses_cannot_take_the_room_of_another(void **state)
{
    (void)state;
    probe_is_answered_beside(40, 8);
}

static void address_in_use_or_malformed_is_reported(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "localhost:1", "1.2.3.4", ":65536", ":x", "999.1.1.1:1"};
    struct http_server *none = NULL;
    struct err err;
    auto_http_server s = started("127.0.0.1:0");
    char taken[32];
    snprintf(taken, sizeof taken, "127.0.0.1:%u", http_server_port(s));
    struct http_server_options o = {.listen = taken};
    assert_int_equal(http_server_start(&o, &none, &err), -ERR_BUSY);
    for (size_t i = 0; i < countof(bad); i++) {
        o.listen = bad[i];
        assert_int_equal(http_server_start(&o, &none, &err), -ERR_INVALID);
    }
    assert_null(none);
}

static void every_address_means_ipv4_too(void **state)
{
    (void)state;
    auto_http_server s = started(":0");
    assert_true(answers(ask(s, "GET", "/healthz"), "200", "ok\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_are_the_page_of_all_families),
        cmocka_unit_test(health_is_ok_or_has_the_cause),
        cmocka_unit_test(status_is_the_document_of_the_program),
        cmocka_unit_test(head_has_no_body_and_other_methods_are_refused),
        cmocka_unit_test(garbage_and_endless_headers_leave_the_server_running),
        cmocka_unit_test(silent_client_is_disconnected_and_makes_room),
        cmocka_unit_test(one_address_cannot_take_the_room_of_another),
        cmocka_unit_test(many_addresses_cannot_take_the_room_of_another),
        cmocka_unit_test(address_in_use_or_malformed_is_reported),
        cmocka_unit_test(every_address_means_ipv4_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
