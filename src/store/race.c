/* SPDX-License-Identifier: Apache-2.0 */
#include "backend.h"
#include "hedge.h"
#include "util/clock.h"

/* An answer that has begun stands still when nothing came in so many waits for a first byte, or in so long: a lost
 * packet alone may take a second. */
enum { STILL_WAITS = 4 };
#define STILL_LEAST_NS (2 * NS_PER_SECOND)

static void set_timer(struct store_job *j)
{
    uint64_t wait = hedge_wait_ns(j->store->hedge);
    if (j->race.answered)
        wait = max_u64(STILL_WAITS * wait, STILL_LEAST_NS);
    loop_timer_set(j->worker->loop, &j->race.watch, wait ? wait : NS_PER_SECOND);
}

static void ask_again(struct store_job *j)
{
    struct store_job *second = job_again(j);
    second->race.rival = j;
    j->race.rival = second;
    job_attempt(second);
}

static void fire(struct timer *t)
{
    struct store_job *j = container_of(t, struct store_job, race.watch);
    struct hedge *h = j->store->hedge;
    uint64_t now = loop_now_ns(j->worker->loop);
    bool slow = !j->args.patient && hedge_is_slow(h, j->args.len, j->race.taken, now - j->race.answered_ns);
    bool still = j->race.answered && !j->race.paused && (!j->race.moved || slow);
    bool capped = j->args.rate && rate_is_exhausted(j->args.rate, now);
    j->race.moved = false;
    if (!j->running || j->cancelled || j->race.rival)
        return;
    bool late = !j->race.answered && hedge_is_late(h, now - j->race.asked_ns);
    if (!capped && (still || late) && hedge_take(h, now, now - j->race.asked_ns)) {
        if (still) {
            j->race.gave_up = true;
            j->store->backend->stop(j);
        } else
            ask_again(j);
        return;
    }
    set_timer(j);
}

void job_asked(struct store_job *j)
{
    if (j->op != JOB_GET || j->race.rival)
        return;
    j->race.asked_ns = loop_now_ns(j->worker->loop);
    hedge_sent(j->store->hedge);
    j->race.watch.fire = fire;
    set_timer(j);
}

void job_answered(struct store_job *j)
{
    struct store_job *rival = j->race.rival;
    j->race.answered = true;
    j->race.answered_ns = loop_now_ns(j->worker->loop);
    if (!rival)
        set_timer(j);
    else if (!rival->race.is_over) {
        rival->race.lost = true;
        job_call_off(rival);
    }
    if (j->args.on_head)
        j->args.on_head(j->ctx, &j->reply.object);
}
