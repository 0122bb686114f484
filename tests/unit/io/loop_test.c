/* SPDX-License-Identifier: Apache-2.0 */
#include "io/loop.h"
#include "unit.h"
#include "util/clock.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

/* A test's loop and what happened on it. The test's thread sleeps until `count` reaches what it waits for. */
struct scene {
    struct loop *loop;
    _Atomic unsigned count;
    char order[64];
    bool all_on_loop;
};

static void happened(struct scene *s, char what)
{
    size_t n = strlen(s->order);
    if (n + 1 < sizeof s->order)
        s->order[n] = what;
    s->all_on_loop = s->all_on_loop && loop_is_mine(s->loop);
    atomic_fetch_add(&s->count, 1);
}

static void wait_for(struct scene *s, unsigned count)
{
    uint64_t deadline = clock_now_ns() + 10 * NS_PER_SECOND;
    while (atomic_load(&s->count) < count && clock_now_ns() < deadline)
        usleep(200);
    assert_true(atomic_load(&s->count) >= count);
}

static int setup(void **state)
{
    static struct scene s;
    struct err err;
    s = (struct scene){.all_on_loop = true};
    *state = &s;
    return loop_new("loop/t", &s.loop, &err);
}

static int teardown(void **state)
{
    loop_free(((struct scene *)*state)->loop);
    return 0;
}

static void start(struct scene *s)
{
    struct err err;
    assert_int_equal(loop_start(s->loop, &err), 0);
}

struct letter {
    struct mail mail;
    struct scene *scene;
    char what;
};

static void read_letter(struct mail *m)
{
    struct letter *t = container_of(m, struct letter, mail);
    happened(t->scene, t->what);
}

static void mail_arrives_in_order_on_the_loop(void **state)
{
    struct scene *s = *state;
    struct letter letters[26];
    start(s);
    for (int i = 0; i < 26; i++) {
        letters[i] = (struct letter){.mail.deliver = read_letter, .scene = s, .what = (char)('a' + i)};
        loop_post(s->loop, &letters[i].mail);
    }
    wait_for(s, 26);
    assert_string_equal(s->order, "abcdefghijklmnopqrstuvwxyz");
    assert_true(s->all_on_loop);
    assert_false(loop_is_mine(s->loop));
}

static void *post_many(void *arg)
{
    struct scene *s = arg;
    struct letter *letters = xcalloc(10000, sizeof *letters);
    for (int i = 0; i < 10000; i++) {
        letters[i] = (struct letter){.mail.deliver = read_letter, .scene = s};
        loop_post(s->loop, &letters[i].mail);
    }
    return letters;
}

static void no_mail_of_many_threads_is_lost(void **state)
{
    struct scene *s = *state;
    pthread_t threads[4];
    void *letters[4];
    start(s);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, post_many, s), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], &letters[i]);
    wait_for(s, 40000);
    for (int i = 0; i < 4; i++)
        free(letters[i]);
}

static void mail_after_the_stop_is_delivered_by_free(void **state)
{
    struct scene *s = *state;
    struct letter t = {.mail.deliver = read_letter, .scene = s, .what = 'x'};
    start(s);
    loop_stop_and_join(s->loop);
    loop_post(s->loop, &t.mail);
    assert_int_equal(s->count, 0);
    loop_free(s->loop);
    s->loop = NULL;
    assert_int_equal(s->count, 1);
}

struct alarm {
    struct timer timer;
    struct scene *scene;
    char what;
    struct timer *cancels;
};

static atomic_bool is_unblocked;

static void ring(struct timer *t)
{
    struct alarm *a = container_of(t, struct alarm, timer);
    if (a->cancels)
        loop_timer_cancel(a->scene->loop, a->cancels);
    happened(a->scene, a->what);
}

static void block(struct mail *m)
{
    (void)m;
    while (!atomic_load(&is_unblocked))
        usleep(1000);
}

static void a_loop_that_does_not_turn_is_stuck_until_it_does(void **state)
{
    const uint64_t limit_ns = 200 * NS_PER_MS;
    struct mail m = {.deliver = block};
    char name[LOOP_NAME_MAX];
    auto_loop l = NULL;
    auto_loop idle = NULL;
    struct err err;
    (void)state;
    assert_int_equal(loop_new("idle", &idle, &err), 0);
    assert_int_equal(loop_start(idle, &err), 0);
    for (int i = 0; i < 3; i++, usleep(300 * 1000))
        assert_false(loop_find_stuck(limit_ns, name)); /* it only waits */
    assert_int_equal(loop_new("blocked", &l, &err), 0);
    assert_int_equal(loop_start(l, &err), 0);
    loop_post(l, &m);
    while (!loop_find_stuck(limit_ns, name))
        usleep(1000);
    assert_string_equal(name, "blocked");
    atomic_store(&is_unblocked, true);
    while (loop_find_stuck(limit_ns, name))
        usleep(1000);
    loop_free(take(&l)); /* and an ended one is not asked */
    usleep(300 * 1000);
    assert_false(loop_find_stuck(limit_ns, name));
}

static void timers_fire_by_due_time(void **state)
{
    struct scene *s = *state;
    struct alarm a[16];
    for (unsigned i = 0; i < 16; i++) {
        unsigned turn = i * 7 % 16;
        a[turn] = (struct alarm){.timer.fire = ring, .scene = s, .what = (char)('a' + turn)};
        loop_timer_set(s->loop, &a[turn].timer, turn * 2 * NS_PER_MS);
    }
    loop_timer_cancel(s->loop, &a[3].timer);
    loop_timer_cancel(s->loop, &a[3].timer);
    loop_timer_set(s->loop, &a[0].timer, 40 * NS_PER_MS);
    start(s);
    wait_for(s, 15);
    assert_string_equal(s->order, "bcefghijklmnopa");
    assert_int_equal(a[0].timer.due_ns, 0);
}

static void a_timer_never_fires_early(void **state)
{
    struct scene *s = *state;
    struct alarm a = {.timer.fire = ring, .scene = s};
    uint64_t before = loop_now_ns(s->loop);
    loop_timer_set(s->loop, &a.timer, 30 * NS_PER_MS);
    start(s);
    wait_for(s, 1);
    assert_true(clock_now_ns() - before >= 30 * NS_PER_MS);
}

static void a_timer_may_cancel_its_neighbour(void **state)
{
    struct scene *s = *state;
    struct alarm last = {.timer.fire = ring, .scene = s, .what = 'c'};
    struct alarm victim = {.timer.fire = ring, .scene = s, .what = 'b'};
    struct alarm killer = {.timer.fire = ring, .scene = s, .what = 'a', .cancels = &victim.timer};
    loop_timer_set(s->loop, &killer.timer, 0);
    loop_timer_set(s->loop, &victim.timer, 1);
    loop_timer_set(s->loop, &last.timer, 2);
    start(s);
    wait_for(s, 2);
    assert_string_equal(s->order, "ac");
}

struct eye {
    struct watch watch;
    struct scene *scene;
    struct eye *other;
};

static void see(struct watch *w, uint32_t events)
{
    struct eye *e = container_of(w, struct eye, watch);
    assert_true(events & EPOLLIN);
    loop_unwatch(e->scene->loop, &e->watch);
    loop_unwatch(e->scene->loop, &e->other->watch);
    happened(e->scene, 'w');
}

/* Both descriptors are ready in the same turn, and whichever comes first takes the other away. */
static void unwatch_holds_within_the_same_turn(void **state)
{
    struct scene *s = *state;
    struct err err;
    struct eye eyes[2];
    struct alarm later = {.timer.fire = ring, .scene = s, .what = 't'};
    for (int i = 0; i < 2; i++) {
        eyes[i] = (struct eye){.watch = {.ready = see, .fd = eventfd(1, EFD_CLOEXEC), .events = EPOLLIN},
                               .scene = s,
                               .other = &eyes[1 - i]};
        assert_int_equal(loop_watch(s->loop, &eyes[i].watch, &err), 0);
    }
    loop_timer_set(s->loop, &later.timer, 5 * NS_PER_MS);
    start(s);
    wait_for(s, 2);
    assert_string_equal(s->order, "wt");
    close(eyes[0].watch.fd);
    close(eyes[1].watch.fd);
}

static void a_bad_descriptor_is_an_error(void **state)
{
    struct scene *s = *state;
    struct err err;
    struct watch w = {.fd = 987654, .events = EPOLLIN};
    assert_int_equal(loop_watch(s->loop, &w, &err), -ERR_IO);
    assert_non_null(strstr(err.text, "descriptor 987654"));
}

struct end {
    struct deferred tail;
    struct scene *scene;
    char what;
    int again;
    struct deferred *cancels;
};

static void run_end(struct deferred *t)
{
    struct end *e = container_of(t, struct end, tail);
    happened(e->scene, e->what);
    if (e->cancels)
        loop_defer_cancel(e->scene->loop, e->cancels);
    if (e->again-- > 0)
        loop_defer(e->scene->loop, t);
}

static void a_tail_runs_once_and_what_it_queues_runs_next_turn(void **state)
{
    struct scene *s = *state;
    struct end c = {.tail.run = run_end, .scene = s, .what = 'c'};
    struct end b = {.tail.run = run_end, .scene = s, .what = 'b', .cancels = &c.tail};
    struct end a = {.tail.run = run_end, .scene = s, .what = 'a', .again = 2};
    loop_defer(s->loop, &a.tail);
    loop_defer(s->loop, &b.tail);
    loop_defer(s->loop, &a.tail);
    loop_defer(s->loop, &c.tail);
    start(s);
    wait_for(s, 4);
    usleep(20000);
    assert_string_equal(s->order, "abaa");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(mail_arrives_in_order_on_the_loop, setup, teardown),
        cmocka_unit_test_setup_teardown(no_mail_of_many_threads_is_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(mail_after_the_stop_is_delivered_by_free, setup, teardown),
        cmocka_unit_test(a_loop_that_does_not_turn_is_stuck_until_it_does),
        cmocka_unit_test_setup_teardown(timers_fire_by_due_time, setup, teardown),
        cmocka_unit_test_setup_teardown(a_timer_never_fires_early, setup, teardown),
        cmocka_unit_test_setup_teardown(a_timer_may_cancel_its_neighbour, setup, teardown),
        cmocka_unit_test_setup_teardown(unwatch_holds_within_the_same_turn, setup, teardown),
        cmocka_unit_test_setup_teardown(a_bad_descriptor_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tail_runs_once_and_what_it_queues_runs_next_turn, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
