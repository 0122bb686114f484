/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that are given up before they are established. */
#include "unit.h"
#include "web_call.h"
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>

/* In place of libc's, for libcurl as well: two.test has the address of the silent listener, and the server's. */
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **ret)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (!host || strcmp(host, "two.test") != 0)
        return real(host, service, hints, ret);
    int r = real("127.0.1.9", service, hints, ret);
    if (r != 0)
        return r;
    struct addrinfo **last = ret;
    while (*last)
        last = &(*last)->ai_next;
    return real("127.0.0.1", service, hints, last); /* freeaddrinfo() frees each by itself */
}

/* A listener at another address whose queue is full, so that the kernel drops what arrives. */
static void silent_start(int fds[4])
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)server.port)};
    inet_pton(AF_INET, "127.0.1.9", &a.sin_addr);
    for (size_t i = 0; i < 4; i++)
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fds[0], (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fds[0], 0), 0);
    for (size_t i = 1; i < 4; i++)
        (void)connect(fds[i], (struct sockaddr *)&a, sizeof a);
}

static void silent_stop(const int fds[4])
{
    for (size_t i = 0; i < 4; i++)
        close(fds[i]);
}

static void cancelled_connections_do_not_count_as_open(void **state)
{
    enum { N = 3 };
    struct err err;
    struct call calls[N], c;
    char url[32];
    int silent[4];
    (void)state;
    silent_start(silent);
    snprintf(url, sizeof url, "http://127.0.1.9:%d/", server.port);
    for (size_t i = 0; i < N; i++) {
        call_init(&calls[i], "GET", url);
        calls[i].cancel_later = true;
        call_start(&calls[i]);
    }
    for (size_t i = 0; i < N; i++) {
        call_wait(&calls[i]);
        assert_int_equal(calls[i].result.code, -ERR_CANCELLED);
    }
    silent_stop(silent);
    get(&c, "/bytes/10");
    assert_int_equal(c.result.code, 0);
    sbuf_done(&c.body);
    loop_stop_and_join(loop);
    assert_int_equal(web_connects(web).connections, N + 1);
    web_set_idle_max(web, 1);
    assert_int_equal(loop_start(loop, &err), 0);
    get(&c, "/bytes/10");
    assert_int_equal(c.result.code, 0);
    sbuf_done(&c.body);
    assert_int_equal(web_connects(web).connections, N + 1); /* the idle connection was used */
}

/* After half of the connect timeout. */
static void next_address_is_tried_after_a_silent_one(void **state)
{
    struct web_options o = {.connect_timeout_ns = 10 * NS_PER_SECOND};
    struct err err;
    struct call c;
    char way[32];
    int silent[4];
    (void)state;
    silent_start(silent);
    snprintf(way, sizeof way, "two.test:%d", server.port);
    for (bool was_first = false; !was_first;) { /* libcurl shuffles the addresses that it looks up */
        loop_stop_and_join(loop);
        web_free(web);
        assert_int_equal(web_new(loop, &o, &web, &err), 0);
        assert_int_equal(loop_start(loop, &err), 0);
        call_init(&c, "GET", url_of("/bytes/10"));
        c.request.connect_to = way;
        call_start(&c);
        call_wait(&c);
        assert_int_equal(c.result.code, 0);
        sbuf_done(&c.body);
        was_first = web_connects(web).connections > 1;
    }
    silent_stop(silent);
}

/* Half of the new connections go to each address. The first read that gets no reply is moved after five seconds. It
 * must not look as if the store took five seconds for a reply: the next one would be moved after four times as long. */
static void wait_for_a_mute_address_does_not_prolong_the_next(void **state)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)server.port)};
    struct call calls[4];
    char url[32];
    (void)state;
    int mute = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    inet_pton(AF_INET, "127.0.1.9", &a.sin_addr);
    assert_int_equal(bind(mute, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(mute, 16), 0);
    snprintf(url, sizeof url, "http://two.test:%d/bytes/10", server.port);
    for (size_t i = 0; i < countof(calls); i++) {
        if (i == 2)
            usleep(4500000); /* the first one waits: the next one has not waited for a second when it is moved */
        call_init(&calls[i], "GET", url);
        calls[i].request.new_connection = true;
        call_start(&calls[i]);
    }
    for (size_t i = 0; i < countof(calls); i++) {
        call_wait(&calls[i]);
        assert_int_equal(calls[i].result.code, 0);
        sbuf_done(&calls[i].body);
    }
    close(mute);
    assert_true(web_connects(web).connections > countof(calls));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(cancelled_connections_do_not_count_as_open),
        TEST(next_address_is_tried_after_a_silent_one),
        TEST(wait_for_a_mute_address_does_not_prolong_the_next),
    };
    unsetenv("http_proxy");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
