/* SPDX-License-Identifier: Apache-2.0 */
#include "connected.h"

#include "http/post_server.h"
#include "util/clock.h"
#include "util/x509.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

static struct x509_pair authority, first, second;
static atomic_int calls_made;
static atomic_int hold_ms;
static atomic_bool held;

static unsigned call(void *ctx, const struct post_request *r, struct sbuf *answer, unsigned *retry_after_seconds)
{
    assert_string_equal(ctx, "the context");
    calls_made++;
    usleep((unsigned)hold_ms * 1000);
    while (held)
        usleep(10000);
    assert_true(r->peer.len == 4 || r->peer.len == 16);
    sbuf_addf(answer, "{\"you\":\"%.*s\",\"sent\":%zu}", STR_FMT(r->authorization), r->body.len);
    *retry_after_seconds = str_eq(r->authorization, STR("Bearer later")) ? 7 : 0;
    return *retry_after_seconds ? 429 : 200;
}

static int make_certificates(void **state)
{
    static const char *const names[] = {"broker.test"};
    struct err err;
    int64_t now = clock_wall_ns() / (int64_t)NS_PER_SECOND;
    struct x509_validity life = {now - 60, now + 3600};
    (void)state;
    signal(SIGPIPE, SIG_IGN); /* of connections that the server closed */
    return x509_make_authority("test", life, &authority, &err) < 0 ||
           x509_make_server(&authority, names, 1, life, &first, &err) < 0 ||
           x509_make_server(&authority, names, 1, life, &second, &err) < 0;
}

static int forget_certificates(void **state)
{
    (void)state;
    x509_pair_done(&authority);
    x509_pair_done(&first);
    x509_pair_done(&second);
    return 0;
}

static struct post_server *started_with(unsigned silence_seconds)
{
    struct err err;
    struct post_server *c = NULL;
    const struct post_server_options o = {.listen = "127.0.0.1:0",
                                          .path = "/v1/credentials",
                                          .ctx = (void *)"the context",
                                          .call = call,
                                          .silence_seconds = silence_seconds};
    if (post_server_open(&o, &c, &err) < 0 || post_server_set_certificate(c, first.certificate, first.key, &err) < 0)
        fail_msg("%s", err.text);
    return c;
}

static struct post_server *started(void)
{
    return started_with(2);
}

struct reply {
    char text[4096];
    bool is_second; /* which certificate was shown */
};

static struct reply *exchange_from(uint32_t address, const struct post_server *c, const char *sent, struct reply *r)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *tls = SSL_new(ctx);
    int fd = connected_from(address, post_server_port(c)), n = 0;
    struct timeval patience = {.tv_sec = 120};
    memset(r, 0, sizeof *r);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience); /* a crowd needs its time to gather */
    /* Else the request waits 40 ms until the server acknowledges the end of the handshake. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    SSL_set_fd(tls, fd);
    if (SSL_connect(tls) == 1) {
        X509 *shown = SSL_get1_peer_certificate(tls);
        BIO *bio = BIO_new_mem_buf(second.certificate, -1);
        X509 *other = PEM_read_bio_X509(bio, NULL, NULL, NULL);
        r->is_second = X509_cmp(shown, other) == 0;
        X509_free(shown);
        X509_free(other);
        BIO_free(bio);
        SSL_write(tls, sent, (int)strlen(sent));
        for (int got; (got = SSL_read(tls, r->text + n, (int)sizeof r->text - n - 1)) > 0;)
            n += got;
    }
    SSL_free(tls);
    SSL_CTX_free(ctx);
    close(fd);
    return r;
}

static struct reply *exchange(const struct post_server *c, const char *sent, struct reply *r)
{
    return exchange_from(INADDR_LOOPBACK, c, sent, r);
}

#define HEAD "POST /v1/credentials HTTP/1.1\r\nHost: broker.test\r\nAuthorization: Bearer me\r\n"

static bool reply_has(const struct reply *r, const char *status, const char *words)
{
    return strncmp(r->text, "HTTP/1.1 ", 9) == 0 && strncmp(r->text + 9, status, 3) == 0 && strstr(r->text, words);
}

static void a_call_gets_its_answer_over_tls(void **state)
{
    (void)state;
    struct reply r;
    auto_post_server c = started();
    assert_true(
        reply_has(exchange(c, HEAD "Content-Length: 5\r\n\r\nhello", &r), "200", "{\"you\":\"Bearer me\",\"sent\":5}"));
    assert_non_null(strstr(r.text, "no-store"));
    assert_true(reply_has(exchange(c, HEAD "Content-Length: 0\r\n\r\n", &r), "200", "\"sent\":0"));
    assert_true(reply_has(exchange(c, HEAD "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", &r),
                          "200", "\"sent\":5"));
    assert_true(reply_has(exchange(c,
                                   "POST /v1/credentials HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer later\r\n"
                                   "Content-Length: 0\r\n\r\n",
                                   &r),
                          "429", "Retry-After: 7"));
}

static void request_to_another_path_or_method_is_refused_before_its_body(void **state)
{
    (void)state;
    struct reply r;
    auto_post_server c = started();
    int before = calls_made;
    assert_true(reply_has(exchange(c, "GET /v1/credentials HTTP/1.1\r\nHost: x\r\n\r\n", &r), "405", "POST only"));
    assert_true(reply_has(exchange(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", &r), "404", "no call has this path"));
    assert_true(reply_has(exchange(c, HEAD "Content-Length: 16385\r\n\r\n", &r), "413", "too long"));
    assert_null(strstr(exchange(c, HEAD "Content-Length: 99999999999999999999\r\n\r\n", &r)->text, " 200 "));
    assert_true(reply_has(exchange(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", &r), "200", "ok"));
    assert_int_equal(calls_made, before);
}

static void chunked_body_over_the_limit_is_refused(void **state)
{
    (void)state;
    struct reply r;
    auto_post_server c = started();
    int before = calls_made;
    auto_sbuf b;
    sbuf_init(&b, 1 << 20);
    sbuf_adds(&b, HEAD "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 40; i++)
        sbuf_addf(&b, "200\r\n%0512d\r\n", i);
    sbuf_adds(&b, "0\r\n\r\n");
    assert_true(reply_has(exchange(c, b.ptr, &r), "413", "too long"));
    assert_int_equal(calls_made, before);
}

static void client_without_tls_or_without_bytes_is_disconnected(void **state)
{
    (void)state;
    char byte;
    auto_post_server c = started();
    auto_fd silent = connected(post_server_port(c)), plain = connected(post_server_port(c));
    assert_true(send(plain, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL) > 0);
    uint64_t began = clock_now_ns();
    while (recv(plain, &byte, 1, 0) > 0 || recv(silent, &byte, 1, 0) > 0)
        ; /* an alert of TLS may come before the end */
    assert_true(clock_now_ns() - began < 10 * NS_PER_SECOND);
}

static void *ask(void *arg)
{
    struct reply *r = xcalloc(1, sizeof *r);
    return exchange(arg, HEAD "Content-Length: 5\r\n\r\nhello", r);
}

static void connections_without_a_call_do_not_keep_calls_out(void **state)
{
    (void)state;
    enum { ADDRESSES = 6, EACH = 60, CROWD = ADDRESSES * EACH };
    struct reply r;
    int fds[CROWD];
    auto_post_server c = started_with(60);
    hold_ms = 1000;
    pthread_t early;
    pthread_create(&early, NULL, ask, c);
    usleep(300000);
    for (unsigned i = 0; i < CROWD; i++)
        fds[i] = connected_from(INADDR_LOOPBACK + 1 + i / EACH, post_server_port(c));
    struct reply *one;
    pthread_join(early, (void **)&one);
    assert_true(reply_has(one, "200", "\"sent\":5")); /* it was the oldest, but it was served */
    free(one);
    hold_ms = 0;
    uint64_t began = clock_now_ns();
    assert_true(reply_has(exchange(c, HEAD "Content-Length: 0\r\n\r\n", &r), "200", "sent"));
    assert_true(clock_now_ns() - began < 10 * NS_PER_SECOND);
    for (unsigned i = 0; i < CROWD; i++)
        close(fds[i]);
}

struct caller {
    pthread_t thread;
    uint32_t address;
    const struct post_server *server;
    struct reply reply;
};

static atomic_int callers_done;

static void *call_as(void *arg)
{
    struct caller *c = arg;
    exchange_from(c->address, c->server, HEAD "Content-Length: 0\r\n\r\n", &c->reply);
    callers_done++;
    return NULL;
}

/* Until its call runs, or has ended. */
static bool begins(struct caller *c, int expected)
{
    pthread_create(&c->thread, NULL, call_as, c);
    for (int i = 0; i < 20000 && calls_made + callers_done < expected; i++)
        usleep(1000);
    return calls_made + callers_done >= expected;
}

static void slow_calls_of_few_addresses_do_not_keep_others_out(void **state)
{
    (void)state;
    enum { ADDRESSES = 5, EACH = 64, CROWD = ADDRESSES * EACH };
    static struct caller crowd[CROWD], other;
    auto_post_server s = started_with(60);
    held = true;
    calls_made = callers_done = 0;
    for (unsigned i = 0; i < CROWD; i++) {
        crowd[i] = (struct caller){.address = INADDR_LOOPBACK + 1 + i / EACH, .server = s};
        assert_true(begins(&crowd[i], (int)i + 1));
    }
    int calls = calls_made, refused = callers_done;
    other = (struct caller){.address = INADDR_LOOPBACK, .server = s};
    begins(&other, CROWD + 1);
    held = false;
    pthread_join(other.thread, NULL);
    for (unsigned i = 0; i < CROWD; i++)
        pthread_join(crowd[i].thread, NULL);
    assert_true(reply_has(&other.reply, "200", "sent"));
    assert_int_equal(calls + refused, CROWD);
    assert_in_range(calls, 256 / (ADDRESSES + 1) * ADDRESSES, 255);
    for (unsigned i = 0; i < CROWD; i++)
        assert_true(reply_has(&crowd[i].reply, "200", "sent") || reply_has(&crowd[i].reply, "503", "Retry-After: 2"));
}

static void new_certificate_is_used_and_running_calls_get_replies(void **state)
{
    (void)state;
    enum { MANY = 20 };
    struct err err;
    struct reply r;
    pthread_t threads[MANY];
    auto_post_server c = started();
    assert_false(exchange(c, HEAD "Content-Length: 0\r\n\r\n", &r)->is_second);
    hold_ms = 300;
    for (int i = 0; i < MANY; i++)
        pthread_create(&threads[i], NULL, ask, c);
    usleep(100000);
    assert_int_equal(post_server_set_certificate(c, second.certificate, second.key, &err), 0);
    for (int i = 0; i < MANY; i++) {
        struct reply *one;
        pthread_join(threads[i], (void **)&one);
        assert_true(reply_has(one, "200", "\"sent\":5"));
        free(one);
    }
    hold_ms = 0;
    assert_true(exchange(c, HEAD "Content-Length: 0\r\n\r\n", &r)->is_second);
    assert_true(reply_has(&r, "200", "sent"));
}

static void a_bad_certificate_changes_nothing(void **state)
{
    (void)state;
    struct err err;
    struct reply r;
    auto_post_server c = started();
    assert_int_equal(post_server_set_certificate(c, "rubbish", second.key, &err), -ERR_INVALID);
    assert_true(reply_has(exchange(c, HEAD "Content-Length: 0\r\n\r\n", &r), "200", "sent"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_gets_its_answer_over_tls),
        cmocka_unit_test(request_to_another_path_or_method_is_refused_before_its_body),
        cmocka_unit_test(chunked_body_over_the_limit_is_refused),
        cmocka_unit_test(client_without_tls_or_without_bytes_is_disconnected),
        cmocka_unit_test(connections_without_a_call_do_not_keep_calls_out),
        cmocka_unit_test(slow_calls_of_few_addresses_do_not_keep_others_out),
        cmocka_unit_test(new_certificate_is_used_and_running_calls_get_replies),
        cmocka_unit_test(a_bad_certificate_changes_nothing),
    };
    return cmocka_run_group_tests(tests, make_certificates, forget_certificates);
}
