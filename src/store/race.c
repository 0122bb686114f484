/* SPDX-License-Identifier: Apache-2.0 */
#include "backend.h"
#include "hedge.h"
#include "telemetry.h"
#include "util/clock.h"

/* A reply that has begun counts as stalled without a byte for this multiple of the wait for a first byte, or for
 * this time. A lost packet alone may take a second. */
enum { STILL_WAITS = 4 };
#define STILL_LEAST_NS (2 * NS_PER_SECOND)

static enum hedge_kind kind_of(const struct store_job *j)
{
    return j->op == STORE_OP_GET ? HEDGE_GET : j->op == STORE_OP_HEAD ? HEDGE_HEAD : HEDGE_LIST;
}

static void set_timer(struct store_job *j)
{
    uint64_t wait = hedge_wait_ns(j->store->hedge, kind_of(j));
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

/* Its body has begun, and moves no byte or far too few. */
static bool stands_still(const struct store_job *j, uint64_t now)
{
    bool slow =
        !j->args.patient && hedge_is_slow(j->store->hedge, j->args.len, j->race.taken, now - j->race.answered_ns);
    return j->race.answered && !j->race.paused && (!j->race.moved || slow);
}

static void fire(struct timer *t)
{
    struct store_job *j = container_of(t, struct store_job, race.watch);
    struct hedge *h = j->store->hedge;
    uint64_t now = loop_now_ns(j->worker->loop);
    bool still = stands_still(j, now);
    bool capped = j->args.rate && rate_is_exhausted(j->args.rate, now);
    j->race.moved = false;
    if (!j->running || j->cancelled || j->race.rival)
        return;
    bool late = !j->race.answered && hedge_is_late(h, kind_of(j), now - j->race.asked_ns);
    if (still && !capped && hedge_take_restart(h)) {
        j->race.gave_up = true;
        j->store->backend->stop(j);
    } else if (late && !capped && hedge_take(h, kind_of(j), now, now - j->race.asked_ns)) {
        ask_again(j);
    } else {
        set_timer(j);
    }
}

void job_asked(struct store_job *j)
{
    if (!job_is_read(j))
        return;
    j->race.asked_ns = loop_now_ns(j->worker->loop);
    if (j->race.rival)
        return;
    hedge_sent(j->store->hedge);
    j->race.watch.fire = fire;
    set_timer(j);
}

static void win(struct store_job *j)
{
    struct store_job *rival = j->race.rival;
    if (!rival)
        return;
    rival->race.lost = true;
    job_cancel(rival); /* no effect if it has failed already */
}

void job_answered(struct store_job *j)
{
    j->race.answered = true;
    j->race.answered_ns = loop_now_ns(j->worker->loop);
    if (!j->race.rival)
        set_timer(j);
    win(j);
    if (j->args.on_head)
        j->args.on_head(j->ctx, &j->reply.object);
}

static void measure(const struct store_job *j)
{
    bool is_answer = j->reply.code >= 0 || j->reply.code == -ERR_NOT_FOUND;
    if (!is_answer || j->cancelled || !j->race.asked_ns)
        return;
    uint64_t now = loop_now_ns(j->worker->loop);
    if (j->op != STORE_OP_GET)
        hedge_answered(j->store->hedge, kind_of(j), now - j->race.asked_ns);
    else if (j->race.answered)
        hedge_body(j->store->hedge, j->args.len, now - j->race.answered_ns);
}

struct store_job *job_settle(struct store_job *j)
{
    struct store_job *rival = j->race.rival;
    measure(j);
    if (!rival)
        return j;
    j->race.is_over = true;
    /* Only a GET has delivered bytes before its end, and has won by its head. */
    if (j->op != STORE_OP_GET && !j->race.lost && !job_failure_passes(&j->reply))
        win(j);
    if (!rival->race.is_over)
        return NULL; /* a failure waits: the other attempt may succeed */
    struct store_job *reported = j->race.lost ? rival : rival->race.lost ? j : j->race.second ? rival : j;
    reported->reply.requests = j->reply.requests + rival->reply.requests;
    reported->reply.hedged = true;
    telemetry_hedge(j->store->telemetry, reported->reply.code < 0 ? "failed" : reported->race.second ? "won" : "lost");
    return reported;
}
