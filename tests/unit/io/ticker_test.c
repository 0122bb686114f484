/* SPDX-License-Identifier: Apache-2.0 */
#include "io/ticker.h"
#include "unit.h"
#include "util/clock.h"
#include <signal.h>
#include <stdatomic.h>

static _Atomic unsigned ticks;
static _Atomic uint64_t rest_ns;

static uint64_t tick(void *ctx)
{
    (void)ctx;
    ticks++;
    return rest_ns;
}

static bool come_to(unsigned count)
{
    for (uint64_t end_ns = clock_now_ns() + 10 * NS_PER_SECOND; ticks < count && clock_now_ns() < end_ns;)
        usleep(1000);
    return ticks >= count;
}

static struct ticker *started(uint64_t rest)
{
    struct ticker *t = NULL;
    struct err err;
    ticks = 0;
    rest_ns = rest;
    assert_int_equal(ticker_start("test", tick, NULL, &t, &err), 0);
    return t;
}

static void ticker_ticks_at_once_and_after_its_interval(void **state)
{
    (void)state;
    struct ticker *t = started(NS_PER_MS);
    assert_true(come_to(5));
    ticker_stop(t);
    unsigned last = ticks;
    usleep(20000);
    assert_int_equal(ticks, last);
}

static void ticker_without_interval_ticks_when_woken_and_stops(void **state)
{
    (void)state;
    struct ticker *t = started(TICKER_NEVER);
    assert_true(come_to(1));
    usleep(20000);
    assert_int_equal(ticks, 1);
    ticker_wake(t);
    assert_true(come_to(2));
    uint64_t began_ns = clock_now_ns();
    ticker_stop(t);
    assert_true(clock_now_ns() - began_ns < 5 * NS_PER_SECOND);
    assert_int_equal(ticks, 2);
    ticker_stop(NULL);
}

static void ticker_stopped_at_once_has_ticked_once(void **state)
{
    (void)state;
    ticker_stop(started(TICKER_NEVER));
    assert_int_equal(ticks, 1);
}

static uint64_t look_at_signals(void *ctx)
{
    pthread_sigmask(SIG_SETMASK, NULL, ctx);
    ticks++;
    return TICKER_NEVER;
}

/* Else it might be this thread that a SIGTERM interrupts, and main reads it from its descriptor in vain. */
static void ticker_thread_blocks_signals(void **state)
{
    (void)state;
    struct ticker *t = NULL;
    struct err err;
    sigset_t blocked;
    ticks = 0;
    assert_int_equal(ticker_start("test", look_at_signals, &blocked, &t, &err), 0);
    assert_true(come_to(1));
    ticker_stop(t);
    assert_true(sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGINT));
    assert_false(sigismember(&blocked, SIGBUS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ticker_ticks_at_once_and_after_its_interval),
        cmocka_unit_test(ticker_without_interval_ticks_when_woken_and_stops),
        cmocka_unit_test(ticker_stopped_at_once_has_ticked_once),
        cmocka_unit_test(ticker_thread_blocks_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
