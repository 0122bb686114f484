/* SPDX-License-Identifier: Apache-2.0 */
#include "backend.h"
#include "hedge.h"
#include "here.h"
#include "util/clock.h"

/* A store that never ends an answer, and two GETs: the bandwidth limit delays the first one, nothing the second. */
static struct store_job *gets[2];
static _Atomic(const struct store_job *) judged; /* the first GET that was sent again or given up */
static bool begins_answers;
static sem_t event;

static void start(struct store_job *j)
{
    job_asked(j);
    if (j->race.second) {
        judged = j->race.rival;
        sem_post(&event);
    } else if (begins_answers) {
        job_answered(j);
    }
}

static void stop(struct store_job *j)
{
    if (j->race.gave_up && !judged) {
        judged = j;
        sem_post(&event);
    }
    j->reply.code = err_set(&j->reply.err, ERR_IO, "stopped");
    job_done(j);
}

static void nothing(struct store_job *)
{
}

static const struct store_backend silent = {
    .job_size = sizeof(struct store_job), .start = start, .stop = stop, .resume = nothing, .release = nothing};

static struct here here;
static struct rate limit = {.units_per_second = 1};
static struct mail submit_mail, cancel_mail;

static void over(void *ctx, const struct store_reply *)
{
    *(struct store_job **)ctx = NULL;
}

static void submit(struct mail *)
{
    for (size_t i = 0; i < countof(gets); i++) {
        const struct job_args args = {.write.key = STR("key"), .len = 1000, .rate = i == 0 ? &limit : NULL};
        gets[i] = job_make(here.store, &here.worker, STORE_OP_GET, &args);
        gets[i]->ctx = &gets[i];
        gets[i]->on_done = over;
        job_submit(gets[i]);
    }
}

static void cancel(struct mail *)
{
    for (size_t i = 0; i < countof(gets); i++)
        if (gets[i])
            store_cancel(gets[i]);
    sem_post(&event);
}

/* Both GETs are as late as each other, and the timer of the first one was set first. */
static void first_is_judged_by_no_delay(bool answers)
{
    here_up(&here);
    const struct store_backend *own = here.store->backend;
    for (unsigned i = 0; i < 128; i++)
        hedge_answered(here.store->hedge, HEDGE_GET, NS_PER_MS);
    here.store->backend = &silent;
    atomic_store(&limit.reserved_until_ns, UINT64_MAX / 2);
    submit_mail.deliver = submit;
    cancel_mail.deliver = cancel;
    begins_answers = answers;
    judged = NULL;
    sem_init(&event, 0, 0);
    loop_post(here.worker.loop, &submit_mail);
    sem_wait(&event);
    const struct store_job *limited = gets[0];
    assert_non_null(limited);
    assert_ptr_not_equal(judged, limited);
    loop_post(here.worker.loop, &cancel_mail);
    sem_wait(&event);
    sem_destroy(&event);
    here.store->backend = own;
    here_down(&here);
}

static void get_that_the_bandwidth_limit_delays_is_not_sent_again(void **state)
{
    (void)state;
    first_is_judged_by_no_delay(false);
}

static void body_that_the_bandwidth_limit_delays_is_not_started_over(void **state)
{
    (void)state;
    first_is_judged_by_no_delay(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(get_that_the_bandwidth_limit_delays_is_not_sent_again),
        cmocka_unit_test(body_that_the_bandwidth_limit_delays_is_not_started_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
