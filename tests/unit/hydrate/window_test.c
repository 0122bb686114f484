/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "private.h"
#include "util/clock.h"

/* A run without threads, whose ticks are given by hand. */
static struct hydrate *run;

static int setup(void **state)
{
    struct err err;
    (void)state;
    run = xcalloc(1, sizeof *run);
    pthread_mutex_init(&run->queue.lock, NULL);
    pthread_mutex_init(&run->window.lock, NULL);
    run->lane_count = 1;
    atomic_store(&run->lanes[0].is_woken, true); /* it looks for work by itself */
    atomic_store(&run->window.size, WINDOW_START);
    run->window.starts_since_ns = clock_now_ns();
    return loop_new("coordinator", &run->coordinator.loop, &err);
}

static int teardown(void **state)
{
    (void)state;
    loop_free(run->coordinator.loop);
    pthread_mutex_destroy(&run->queue.lock);
    pthread_mutex_destroy(&run->window.lock);
    free(run);
    return 0;
}

/* A tenth of a second in which so many requests ended, while the window was full. */
static unsigned full_tick(unsigned requests)
{
    run->queue.active = atomic_load(&run->window.size);
    atomic_fetch_add(&run->progress.requests, requests);
    window_tick(run, loop_now_ns(run->coordinator.loop));
    return atomic_load(&run->window.size);
}

static void while_requests_wait_for_the_way_alone_it_doubles_up_to_its_end(void **state)
{
    (void)state;
    atomic_store(&run->lanes[0].quickest_ns, 20 * NS_PER_MS);
    for (unsigned want = 2 * WINDOW_START; want <= WINDOW_MAX; want *= 2)
        assert_int_equal(full_tick(100), want);
    assert_int_equal(full_tick(100), WINDOW_MAX);
    run->o.concurrency_max = 24;
    assert_int_equal(full_tick(100), 24);
}

/* A look at the window, full, when so many requests have ended in so many milliseconds more. */
static unsigned climb(unsigned requests, unsigned ms)
{
    static uint64_t now_ns = NS_PER_SECOND;
    now_ns += ms * NS_PER_MS;
    run->queue.active = atomic_load(&run->window.size);
    atomic_fetch_add(&run->progress.requests, requests);
    assert_int_equal(window_climb(run, now_ns), ROUND_NS);
    return atomic_load(&run->window.size);
}

static void the_first_climb_doubles_it_at_each_round_trip(void **state)
{
    (void)state;
    window_climb(run, NS_PER_SECOND); /* nothing runs yet */
    atomic_store(&run->lanes[0].quickest_ns, 20 * NS_PER_MS);
    assert_int_equal(climb(WINDOW_START / 2, 10), WINDOW_START); /* half a round */
    assert_int_equal(climb(WINDOW_START / 2, 10), 2 * WINDOW_START);
    assert_int_equal(climb(2 * WINDOW_START, 30), 4 * WINDOW_START);
    assert_int_equal(climb(4 * WINDOW_START, 50), 4 * WINDOW_START); /* they wait for each other */
    atomic_fetch_add(&run->window.refused, 1);
    assert_int_equal(window_climb(run, 2 * NS_PER_SECOND), 0);
}

static void a_step_that_brings_nothing_is_taken_back(void **state)
{
    (void)state;
    assert_int_equal(full_tick(100), 2 * WINDOW_START); /* tried */
    assert_int_equal(full_tick(100), WINDOW_START);     /* no more than before came */
    for (int i = 0; i < 15; i++)
        assert_int_equal(full_tick(100), WINDOW_START);
}

static void a_step_that_pays_stays(void **state)
{
    (void)state;
    assert_int_equal(full_tick(100), 2 * WINDOW_START);
    assert_true(full_tick(200) >= 2 * WINDOW_START);
}

/* At rest at `window`, where each request under way ends `per_slot` times a tick up to `most`: where it is after so
 * many ticks. */
static unsigned window_after(unsigned window, double per_slot, unsigned most, unsigned ticks)
{
    unsigned now = window;
    run->window.has_rested = true;
    run->o.concurrency_max = 512;
    atomic_store(&run->window.size, window);
    for (unsigned i = 0; i < ticks; i++)
        now = full_tick((unsigned)min_u64((uint64_t)(now * per_slot), most));
    return now;
}

static void at_rest_it_falls_to_what_brings_no_less(void **state)
{
    (void)state;
    unsigned end = window_after(512, 10, 1000, 600);
    assert_true(end >= 64 && end <= 256); /* a hundred are enough */
}

static void at_rest_it_rises_while_that_pays(void **state)
{
    (void)state;
    assert_true(window_after(32, 10, 100000, 600) >= 256);
}

static void smaller_window_is_not_judged_by_older_requests(void **state)
{
    (void)state;
    unsigned now;
    run->window.has_rested = true;
    run->o.concurrency_max = 64;
    atomic_store(&run->window.size, 64);
    do
        now = full_tick(1000);
    while (now == 64);
    assert_int_equal(now, 32);
    for (int i = 0; i < 50; i++) { /* long parts go on */
        run->queue.active = 64;
        atomic_fetch_add(&run->progress.requests, 1000);
        window_tick(run, loop_now_ns(run->coordinator.loop));
        assert_int_equal(atomic_load(&run->window.size), 32);
    }
    for (int i = 0; i < 10 && now == 32; i++) /* half of it shows its effect */
        now = full_tick(500);
    assert_int_equal(now, 64);
}

static void a_trial_ends_when_the_window_is_no_longer_full(void **state)
{
    (void)state;
    unsigned now;
    run->window.has_rested = true;
    atomic_store(&run->window.size, 64);
    do
        now = full_tick(100);
    while (now == 64);
    run->queue.active = 1;
    window_tick(run, loop_now_ns(run->coordinator.loop));
    assert_int_equal(atomic_load(&run->window.size), 64);
}

static void a_window_that_is_not_full_stays_as_it_is(void **state)
{
    (void)state;
    atomic_store(&run->lanes[0].quickest_ns, 20 * NS_PER_MS);
    for (int i = 0; i < 10; i++) {
        run->queue.active = WINDOW_START / 2;
        atomic_fetch_add(&run->progress.requests, 100);
        window_tick(run, loop_now_ns(run->coordinator.loop));
        assert_int_equal(atomic_load(&run->window.size), WINDOW_START);
    }
}

static void parts_that_wait_for_the_disk_bring_it_back_to_where_it_began(void **state)
{
    (void)state;
    atomic_store(&run->window.size, 200);
    atomic_store(&run->window.paused, 200);
    unsigned before = 200, now;
    while ((now = full_tick(100)) != before) {
        assert_true(now < before);
        before = now;
    }
    assert_int_equal(before, WINDOW_START);
}

/* A tick in which so many connections were tried and turned away, of a full window of which so many jobs wait. */
static unsigned narrow_tick(unsigned tried, unsigned turned_away, unsigned waiting)
{
    atomic_fetch_add(&run->lanes[0].connections, tried);
    atomic_fetch_add(&run->lanes[0].turned_away, turned_away);
    atomic_store(&run->lanes[0].under_way, atomic_load(&run->window.size));
    atomic_store(&run->lanes[0].waiting, waiting);
    return full_tick(turned_away == tried ? 1 : 10);
}

static void a_server_that_bears_few_connections_is_asked_by_those_that_stand(void **state)
{
    (void)state;
    assert_int_equal(narrow_tick(16, 8, 6), 10);
    assert_true(atomic_load(&run->window.is_crowded));
    assert_int_equal(narrow_tick(0, 0, 0), 10);
    for (int i = 0; i < 10; i++)
        assert_int_equal(full_tick(100), 10); /* at rest */
}

static void many_are_given_up_by_halves(void **state)
{
    (void)state;
    atomic_store(&run->window.size, 512);
    for (unsigned want = 256; want >= 8; want /= 2)
        assert_int_equal(narrow_tick(512, 504, 512), want);
    for (int i = 0; i < 10; i++)
        narrow_tick(1, 1, 512);
    assert_int_equal(atomic_load(&run->window.size), 2); /* and never to nothing */
}

static void idle_connections_are_given_up_for_who_is_turned_away_also_while_nothing_moves(void **state)
{
    (void)state;
    run->queue.active = 1;
    atomic_fetch_add(&run->lanes[0].connections, 1);
    atomic_fetch_add(&run->lanes[0].turned_away, 1);
    window_tick(run, loop_now_ns(run->coordinator.loop));
    assert_true(atomic_load(&run->window.is_crowded));
    assert_int_equal(atomic_load(&run->window.size), WINDOW_START);
}

static void connections_that_break_now_and_then_change_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        assert_true(narrow_tick(10, 4, 4) >= WINDOW_START);
    assert_false(atomic_load(&run->window.is_crowded));
}

static void a_store_that_is_away_altogether_finds_the_window_as_it_was(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        atomic_fetch_sub(&run->progress.requests, 1); /* none of narrow_tick's ended */
        assert_true(narrow_tick(16, 16, 16) >= WINDOW_START);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_climb_doubles_it_at_each_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(while_requests_wait_for_the_way_alone_it_doubles_up_to_its_end, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_step_that_brings_nothing_is_taken_back, setup, teardown),
        cmocka_unit_test_setup_teardown(a_step_that_pays_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(a_server_that_bears_few_connections_is_asked_by_those_that_stand, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(idle_connections_are_given_up_for_who_is_turned_away_also_while_nothing_moves,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(many_are_given_up_by_halves, setup, teardown),
        cmocka_unit_test_setup_teardown(connections_that_break_now_and_then_change_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_store_that_is_away_altogether_finds_the_window_as_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(a_window_that_is_not_full_stays_as_it_is, setup, teardown),
        cmocka_unit_test_setup_teardown(at_rest_it_falls_to_what_brings_no_less, setup, teardown),
        cmocka_unit_test_setup_teardown(at_rest_it_rises_while_that_pays, setup, teardown),
        cmocka_unit_test_setup_teardown(smaller_window_is_not_judged_by_older_requests, setup, teardown),
        cmocka_unit_test_setup_teardown(a_trial_ends_when_the_window_is_no_longer_full, setup, teardown),
        cmocka_unit_test_setup_teardown(parts_that_wait_for_the_disk_bring_it_back_to_where_it_began, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
