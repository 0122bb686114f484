/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/queue.h"
#include "unit.h"
#include "util/clock.h"
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

/* The calls of the reconciler, and its results. */
struct record {
    pthread_mutex_t lock;
    char keys[2048][24];
    uint64_t at_ns[2048];
    unsigned count;
    unsigned failures_left;
    unsigned failures_told;
    uint64_t again_ns;
    uint64_t lasts_ns;
    atomic_uint running, most_running;
    atomic_bool held; /* who runs stays */
    struct kube_queue *queue;
    bool adds_itself;
};

static int reconcile(void *ctx, struct str key, uint64_t *again_ns, struct err *err)
{
    struct record *r = ctx;
    unsigned running = atomic_fetch_add(&r->running, 1) + 1;
    int code = 0;
    if (running > atomic_load(&r->most_running))
        atomic_store(&r->most_running, running);
    pthread_mutex_lock(&r->lock);
    snprintf(r->keys[r->count % 2048], 24, "%.*s", STR_FMT(key));
    r->at_ns[r->count % 2048] = clock_now_ns();
    r->count++;
    *again_ns = r->again_ns;
    r->again_ns = 0;
    if (r->failures_left > 0 && r->failures_left--)
        code = err_set(err, ERR_AGAIN, "not yet");
    bool adds = r->adds_itself;
    r->adds_itself = false;
    pthread_mutex_unlock(&r->lock);
    if (adds)
        assert(kube_queue_add(r->queue, key));
    usleep((useconds_t)(r->lasts_ns / 1000));
    while (atomic_load(&r->held))
        usleep(1000);
    atomic_fetch_sub(&r->running, 1);
    return code;
}

static void on_failure(void *ctx, struct str key, const struct err *err, unsigned attempt, uint64_t wait_ns)
{
    struct record *r = ctx;
    (void)key;
    (void)wait_ns;
    pthread_mutex_lock(&r->lock);
    r->failures_told = attempt;
    pthread_mutex_unlock(&r->lock);
    assert(err->code == ERR_AGAIN);
}

static struct kube_queue *begin(struct record *r, unsigned threads, unsigned keys_max)
{
    struct err err;
    struct kube_queue *q;
    memset(r, 0, sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    assert_int_equal(kube_queue_new(&(struct kube_queue_options){.name = "test",
                                                                 .threads = threads,
                                                                 .keys_max = keys_max,
                                                                 .backoff_base_ns = 20 * NS_PER_MS,
                                                                 .backoff_cap_ns = 80 * NS_PER_MS,
                                                                 .ctx = r,
                                                                 .reconcile = reconcile,
                                                                 .on_failure = on_failure},
                                    &q, &err),
                     0);
    r->queue = q;
    return q;
}

static unsigned count_of(struct record *r)
{
    pthread_mutex_lock(&r->lock);
    unsigned count = r->count;
    pthread_mutex_unlock(&r->lock);
    return count;
}

/* Until nothing is known any more. */
static void drain(struct kube_queue *q)
{
    for (int i = 0; kube_queue_length(q) > 0; i++) {
        assert_true(i < 30000);
        usleep(1000);
    }
}

static struct record r;

static void await_running(unsigned count)
{
    for (int i = 0; atomic_load(&r.running) != count; i++) {
        assert_true(i < 30000);
        usleep(1000);
    }
}

/* When the reconciler saw it first. */
static uint64_t seen_ns(const char *key)
{
    for (unsigned i = 0; i < r.count; i++)
        if (strcmp(r.keys[i], key) == 0)
            return r.at_ns[i];
    fail_msg("'%s' was not seen", key);
    return 0;
}

static void waiting_key_is_queued_once(void **state)
{
    (void)state;
    auto_kube_queue q = begin(&r, 1, 0);
    r.held = true;
    assert_true(kube_queue_add(q, STR("first")));
    await_running(1);
    for (int i = 0; i < 10; i++) {
        assert_true(kube_queue_add(q, STR("a")));
        assert_true(kube_queue_add(q, STR("b")));
    }
    assert_int_equal(kube_queue_length(q), 3);
    r.held = false;
    drain(q);
    assert_int_equal(count_of(&r), 3);
    assert_string_equal(r.keys[1], "a");
    assert_string_equal(r.keys[2], "b");
}

static void key_added_while_it_runs_runs_again(void **state)
{
    (void)state;
    auto_kube_queue q = begin(&r, 4, 0);
    r.lasts_ns = 20 * NS_PER_MS;
    r.adds_itself = true;
    assert_true(kube_queue_add(q, STR("a")));
    drain(q);
    assert_int_equal(count_of(&r), 2);
    assert_int_equal(atomic_load(&r.most_running), 1);
}

static void many_threads_work_at_different_keys_at_once(void **state)
{
    (void)state;
    auto_kube_queue q = begin(&r, 4, 0);
    r.held = true;
    for (int i = 0; i < 8; i++) {
        char key[8];
        snprintf(key, sizeof key, "k%d", i);
        assert_true(kube_queue_add(q, str_of(key)));
    }
    await_running(4);
    r.held = false;
    drain(q);
    assert_int_equal(count_of(&r), 8);
    assert_int_equal(atomic_load(&r.most_running), 4);
}

static void failed_key_backs_off_and_success_resets_it(void **state)
{
    (void)state;
    auto_kube_queue q = begin(&r, 1, 0);
    r.failures_left = 4;
    assert_true(kube_queue_add(q, STR("a")));
    drain(q);
    assert_int_equal(count_of(&r), 5);
    assert_int_equal(r.failures_told, 4);
    /* At least half of 20, 40, 80 and 80 (the cap) ms. */
    static const unsigned least_ms[] = {10, 20, 40, 40};
    for (unsigned i = 0; i < 4; i++)
        assert_true(r.at_ns[i + 1] - r.at_ns[i] >= least_ms[i] * NS_PER_MS);
    r.failures_left = 1;
    assert_true(kube_queue_add(q, STR("a")));
    drain(q);
    assert_int_equal(r.failures_told, 1);
}

static void key_runs_again_after_its_delay(void **state)
{
    (void)state;
    auto_kube_queue q = begin(&r, 2, 0);
    r.again_ns = 60 * NS_PER_MS;
    assert_true(kube_queue_add(q, STR("a")));
    drain(q);
    assert_int_equal(count_of(&r), 2);
    assert_true(r.at_ns[1] - r.at_ns[0] >= 60 * NS_PER_MS);
}

static void a_delay_is_kept_unless_the_key_is_wanted_earlier(void **state)
{
    (void)state;
    auto_kube_queue q = begin(&r, 1, 0);
    uint64_t start = clock_now_ns();
    assert_true(kube_queue_add_after(q, STR("now"), 3600 * NS_PER_SECOND));
    assert_true(kube_queue_add_after(q, STR("late"), 120 * NS_PER_MS));
    assert_true(kube_queue_add_after(q, STR("late"), 3600 * NS_PER_SECOND)); /* it stays where it is */
    assert_true(kube_queue_add_after(q, STR("soon"), 40 * NS_PER_MS));
    assert_true(kube_queue_add(q, STR("now")));
    drain(q);
    assert_int_equal(count_of(&r), 3);
    assert_true(seen_ns("now") >= start);
    assert_true(seen_ns("soon") >= start + 40 * NS_PER_MS && seen_ns("late") >= start + 120 * NS_PER_MS);
}

static void key_beyond_the_limit_is_refused(void **state)
{
    (void)state;
    static char too_long[600];
    auto_kube_queue q = begin(&r, 1, 2);
    memset(too_long, 'x', sizeof too_long);
    assert_true(kube_queue_add_after(q, STR("a"), 3600 * NS_PER_SECOND));
    assert_true(kube_queue_add_after(q, STR("b"), 3600 * NS_PER_SECOND));
    assert_false(kube_queue_add(q, STR("c")));
    assert_true(kube_queue_add_after(q, STR("a"), 3600 * NS_PER_SECOND));
    assert_false(kube_queue_add(q, (struct str){too_long, sizeof too_long}));
    assert_false(kube_queue_add(q, STR_NULL));
}

/* Lets the reconciler continue when thread `arg` sleeps; seen twice in a row, so that it really waits. */
static void *release_when_it_sleeps(void *arg)
{
    char path[64], state = 'R';
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", *(const pid_t *)arg);
    for (int asleep = 0; asleep < 2; asleep = state == 'S' ? asleep + 1 : 0) {
        FILE *f = fopen(path, "r");
        assert(f && fscanf(f, "%*d (%*[^)]) %c", &state) == 1);
        (void)fclose(f);
        usleep(5000);
    }
    atomic_store(&r.held, false);
    return NULL;
}

static void queue_free_waits_for_running_keys_and_starts_none(void **state)
{
    (void)state;
    pthread_t other;
    pid_t me = gettid();
    struct kube_queue *q = begin(&r, 1, 0);
    r.held = true;
    assert_true(kube_queue_add(q, STR("a")));
    assert_true(kube_queue_add(q, STR("b")));
    await_running(1);
    assert_int_equal(pthread_create(&other, NULL, release_when_it_sleeps, &me), 0);
    kube_queue_free(q);
    assert_int_equal(r.count, 1);
    assert_int_equal(atomic_load(&r.running), 0);
    assert_int_equal(pthread_join(other, NULL), 0);
}

static void thousand_delayed_keys_run_in_order(void **state)
{
    (void)state;
    static uint64_t least_due[1000], most_due[1000]; /* the queue reads the clock somewhere between */
    auto_kube_queue q = begin(&r, 1, 0);
    for (unsigned i = 0; i < 1000; i++) {
        char key[16];
        unsigned n = i * 389 % 1000; /* each once, in disorder */
        uint64_t delay = 50 * NS_PER_MS + n * NS_PER_MS / 5;
        snprintf(key, sizeof key, "%03u", n);
        least_due[n] = clock_now_ns() + delay;
        assert_true(kube_queue_add_after(q, str_of(key), delay));
        most_due[n] = clock_now_ns() + delay;
    }
    drain(q);
    assert_int_equal(r.count, 1000);
    for (unsigned i = 1; i < 1000; i++)
        assert_true(least_due[strtoul(r.keys[i - 1], NULL, 10)] <= most_due[strtoul(r.keys[i], NULL, 10)]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiting_key_is_queued_once),
        cmocka_unit_test(key_added_while_it_runs_runs_again),
        cmocka_unit_test(many_threads_work_at_different_keys_at_once),
        cmocka_unit_test(failed_key_backs_off_and_success_resets_it),
        cmocka_unit_test(key_runs_again_after_its_delay),
        cmocka_unit_test(a_delay_is_kept_unless_the_key_is_wanted_earlier),
        cmocka_unit_test(key_beyond_the_limit_is_refused),
        cmocka_unit_test(queue_free_waits_for_running_keys_and_starts_none),
        cmocka_unit_test(thousand_delayed_keys_run_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
