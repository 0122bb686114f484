/* SPDX-License-Identifier: Apache-2.0 */
/* web_call.h - one request of a web test and its callbacks, on a loop, with a server. */
#pragma once

#include "io/web.h"
#include "tiny_server.h"
#include "unit.h"
#include "util/clock.h"
#include <semaphore.h>

static struct tiny_server server;
static struct loop *loop;
static struct web *web;
static _Atomic bool is_torn_down; /* the calls of a test that failed are gone with its stack */

/* One request and the result of each callback. */
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

    unsigned pause_at;           /* the body call that answers WEB_PAUSE; 0: none */
    _Atomic unsigned body_calls; /* a test may wait for them */
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
    if (++c->body_calls == c->pause_at) {
        if (c->resume_later)
            loop_timer_set(loop, &c->later, 50 * NS_PER_MS);
        return WEB_PAUSE;
    }
    if (c->abort_body)
        return c->abort_body;
    sbuf_add(&c->body, (struct str){bytes, len});
    return 0;
}

static void done(void *ctx, const struct web_result *r)
{
    struct call *c = ctx;
    if (is_torn_down)
        return;
    c->reentered |= c->inside;
    c->dones++;
    c->result = *r;
    loop_timer_cancel(loop, &c->later);
    sem_post(&c->over);
}

static inline ssize_t read_source(void *ctx, char *buf, size_t room)
{
    struct call *c = ctx;
    if (!c->source)
        return -1;
    size_t n = min_u64(room, c->source_len - c->source_at);
    memcpy(buf, c->source + c->source_at, n);
    c->source_at += n;
    return (ssize_t)n;
}

static inline int seek_source(void *ctx, uint64_t offset)
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
    if (c->cancel_later)
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
    t.tv_sec += 60;
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

static inline void get(struct call *c, const char *path)
{
    call_init(c, "GET", url_of(path));
    call_start(c);
    call_wait(c);
}

static inline void assert_pattern(const struct sbuf *b, size_t len)
{
    assert_int_equal(b->len, len);
    for (size_t i = 0; i < len; i++)
        if (b->ptr[i] != (char)('a' + i % 26))
            fail_msg("byte %zu is wrong", i);
}

static inline void begin_guarded(uint64_t stall_ns, const struct guard *guard)
{
    struct err err;
    struct web_options o = {.stall_timeout_ns = stall_ns, .connect_timeout_ns = NS_PER_SECOND, .guard = guard};
    is_torn_down = false;
    assert_int_equal(loop_new("loop/t", &loop, &err), 0);
    assert_int_equal(web_new(loop, &o, &web, &err), 0);
    assert_int_equal(loop_start(loop, &err), 0);
}

static inline void begin(uint64_t stall_ns)
{
    begin_guarded(stall_ns, NULL);
}

static inline int setup(void **state)
{
    (void)state;
    tiny_server_start(&server);
    begin(20 * NS_PER_SECOND); /* longer than the slowest machine needs */
    return 0;
}

static inline int setup_impatient(void **state)
{
    (void)state;
    tiny_server_start(&server);
    begin(300 * NS_PER_MS);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    is_torn_down = true;
    loop_stop_and_join(loop);
    web_free(web);
    loop_free(loop);
    tiny_server_stop(&server);
    return 0;
}

#define TEST_IMPATIENT(f) cmocka_unit_test_setup_teardown(f, setup_impatient, teardown)
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
