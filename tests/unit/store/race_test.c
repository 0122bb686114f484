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

/* ---- a first attempt that fails while the second runs ------------------------------------------------------------ */

static struct store_job *first;
static struct timer next;
static bool cancels;
static unsigned starts, ends;

static void end(struct store_job *j, bool malformed)
{
    if (malformed)
        j->reply.code = err_set(&j->reply.err, ERR_CORRUPT, "not a reply");
    j->reply.is_malformed = malformed;
    job_done(j);
}

static void end_second(struct timer *)
{
    struct store_job *second = first->race.rival;
    if (!cancels && second->op == STORE_OP_GET)
        job_answered(second);
    end(second, cancels);
}

static void cancel_both(struct timer *)
{
    store_cancel(first);
}

static void go_on_with(struct store_job *j, void (*fire)(struct timer *t))
{
    next.fire = fire;
    loop_timer_set(j->worker->loop, &next, 0);
}

static void start_double(struct store_job *j)
{
    starts++;
    job_asked(j);
    if (starts > 2) { /* a retry */
        end(j, false);
    } else if (j->race.second) {
        end(first, true);
        go_on_with(j, cancels ? cancel_both : end_second);
    }
}

static void stop_double(struct store_job *j)
{
    assert_true(cancels && j->race.second);
    go_on_with(j, end_second);
}

static struct store_backend doubled;

static void double_over(void *ctx, const struct store_reply *r)
{
    ends++;
    call_done(ctx, r);
}

static void make_double(struct here_call *c)
{
    const struct job_args args = {.write.key = STR("key"), .len = 1000};
    first = job_make(here.store, &here.worker, *(const enum store_op *)c->arg, &args);
    first->ctx = c;
    first->on_done = double_over;
    job_submit(first);
}

/* The code of a read whose first attempt ends malformed. The second one succeeds, or the read is cancelled. */
static int double_read(enum store_op op, bool is_cancelled)
{
    struct here_call c = {0};
    here_up(&here);
    /* The store is also freed by it: its loop may still free the job when the call is over. */
    doubled = *here.store->backend;
    doubled.job_size = sizeof(struct store_job);
    doubled.start = start_double;
    doubled.stop = stop_double;
    doubled.resume = doubled.release = nothing;
    for (unsigned i = 0; i < 128; i++)
        hedge_answered(here.store->hedge, op == STORE_OP_GET ? HEDGE_GET : HEDGE_HEAD, NS_PER_MS);
    here.store->backend = &doubled;
    cancels = is_cancelled;
    starts = ends = 0;
    int code = call(&here, &c, make_double, &op);
    call_free(&c);
    here_down(&here);
    assert_int_equal(starts, 2);
    assert_int_equal(ends, 1);
    return code;
}

static void success_of_the_second_attempt_is_reported_after_the_first_failed(void **state)
{
    (void)state;
    assert_int_equal(double_read(STORE_OP_GET, false), 0);
    assert_int_equal(double_read(STORE_OP_HEAD, false), 0);
}

static void read_that_was_cancelled_is_not_retried_after_a_malformed_reply(void **state)
{
    (void)state;
    assert_int_equal(double_read(STORE_OP_HEAD, true), -ERR_CANCELLED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(get_that_the_bandwidth_limit_delays_is_not_sent_again),
        cmocka_unit_test(body_that_the_bandwidth_limit_delays_is_not_started_over),
        cmocka_unit_test(success_of_the_second_attempt_is_reported_after_the_first_failed),
        cmocka_unit_test(read_that_was_cancelled_is_not_retried_after_a_malformed_reply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
