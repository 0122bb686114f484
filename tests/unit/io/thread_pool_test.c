/* SPDX-License-Identifier: Apache-2.0 */
#include "io/thread_pool.h"
#include "unit.h"
#include "util/clock.h"
#include "util/str.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

struct scene {
    struct loop *loop;
    struct thread_pool *threads;
    _Atomic unsigned at_once;
    _Atomic unsigned most_at_once;
    _Atomic unsigned run;
    _Atomic unsigned done;
    _Atomic bool wrong_thread;
};

struct task {
    struct work work;
    struct scene *scene;
};

static void run(struct work *w)
{
    struct scene *s = container_of(w, struct task, work)->scene;
    char name[16];
    unsigned now = atomic_fetch_add(&s->at_once, 1) + 1, most = s->most_at_once;
    while (now > most && !atomic_compare_exchange_weak(&s->most_at_once, &most, now))
        ;
    pthread_getname_np(pthread_self(), name, sizeof name);
    /* The first work may overtake the naming of its thread: look at a late one. */
    if (atomic_fetch_add(&s->run, 1) > 100 && strncmp(name, "pool/", 5) != 0)
        s->wrong_thread = true;
    usleep(100);
    atomic_fetch_sub(&s->at_once, 1);
}

static void done(struct work *w)
{
    struct scene *s = container_of(w, struct task, work)->scene;
    if (!loop_is_mine(s->loop))
        s->wrong_thread = true;
    atomic_fetch_add(&s->done, 1);
}

static void setup(struct scene *s, unsigned threads)
{
    struct err err;
    memset(s, 0, sizeof *s);
    assert_int_equal(loop_new("loop/t", &s->loop, &err), 0);
    assert_int_equal(thread_pool_new(threads, &s->threads, &err), 0);
    assert_int_equal(loop_start(s->loop, &err), 0);
}

static void work_runs_on_the_pool_and_completes_on_its_loop(void **state)
{
    (void)state;
    struct scene s;
    setup(&s, 3);
    struct task *tasks = xcalloc(500, sizeof *tasks);
    for (int i = 0; i < 500; i++) {
        tasks[i] = (struct task){.work = {.run = run, .done = done}, .scene = &s};
        thread_pool_submit(s.threads, s.loop, &tasks[i].work);
    }
    thread_pool_free(s.threads);
    loop_free(s.loop);
    assert_int_equal(s.run, 500);
    assert_int_equal(s.done, 500);
    assert_in_range(s.most_at_once, 2, 3);
    assert_false(s.wrong_thread);
    free(tasks);
}

static void a_pool_without_threads_is_refused(void **state)
{
    (void)state;
    struct thread_pool *p;
    struct err err;
    assert_int_equal(thread_pool_new(0, &p, &err), -ERR_INVALID);
    assert_int_equal(thread_pool_new(100000, &p, &err), -ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_runs_on_the_pool_and_completes_on_its_loop),
        cmocka_unit_test(a_pool_without_threads_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
