/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a job: its attempts, the delays between them, its reply. */
#include "backend.h"
#include "denials.h"
#include "hedge.h"
#include "telemetry.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

/* ---- retries ----------------------------------------------------------------------------------------------------- */

static struct store_retry policy_of(struct store *s)
{
    auto_lock(&s->lock);
    return s->retry;
}

/* A first failure is shown only while nothing else succeeds: a retry usually succeeds. */
static void note_retry(struct store *s, const struct store_reply *r, unsigned attempts, uint64_t delay_ns)
{
    log_event(LOG_INFO, "retrying", "cause", r->err.text, "attempt", log_u64(attempts + 1), "in_ms",
              log_u64(delay_ns / NS_PER_MS), NULL);
    auto_lock(&s->lock);
    uint64_t now_ns = clock_now_ns();
    if (s->again.attempts == 0 || atomic_load(&s->success_ns) > s->again.since_ns)
        s->again.since_ns = now_ns;
    s->again.cause = r->err;
    s->again.attempts = attempts;
    s->again.due_ns = now_ns + delay_ns;
}

bool job_failure_passes(const struct store_reply *r)
{
    return r->code < 0 && (r->may_retry || r->attempts_max || r->is_malformed);
}

bool store_retry_delay(struct store *s, const struct store_reply *r, unsigned attempts, uint64_t elapsed_ns,
                       uint64_t *ret_delay_ns)
{
    const struct store_retry policy = policy_of(s);
    if (!job_failure_passes(r) || (!r->turned_away && attempts >= policy.attempts_max))
        return false;
    if (r->attempts_max && attempts >= r->attempts_max) {
        denials_note_final(s->denials);
        return false;
    }
    /* With a fully random delay, a few objects in a hundred would use up their attempts while the store restarts,
     * which takes six seconds. */
    uint64_t backoff = clock_backoff_half_ns(attempts, policy.backoff_base_ns, policy.backoff_cap_ns);
    uint64_t delay = max_u64(backoff, r->retry_after_ns);
    if (!r->turned_away && elapsed_ns + delay > policy.elapsed_max_ns)
        return false;
    hedge_retried(s->hedge);
    atomic_fetch_add_explicit(&s->retries, 1, memory_order_relaxed);
    if (!r->turned_away)
        note_retry(s, r, attempts, delay);
    *ret_delay_ns = delay;
    return true;
}

uint64_t store_retries(const struct store *s)
{
    return atomic_load_explicit(&s->retries, memory_order_relaxed);
}

bool store_has_answered(const struct store *s)
{
    return atomic_load_explicit(&s->served_ns, memory_order_relaxed) != 0;
}

uint64_t store_retry_limit_ns(struct store *s, const struct store_reply *r)
{
    const struct store_retry policy = policy_of(s);
    uint64_t sum = 0;
    for (unsigned i = 0; i + 1 < policy.attempts_max && sum < policy.elapsed_max_ns; i++)
        sum += max_u64(clock_doubled_ns(i, policy.backoff_base_ns, policy.backoff_cap_ns), r->retry_after_ns);
    return min_u64(sum, policy.elapsed_max_ns);
}

static bool is_stuck(struct store *s, uint64_t now_ns)
{
    return s->again.attempts > 0 && now_ns > s->again.since_ns + 2 * NS_PER_SECOND &&
           atomic_load(&s->success_ns) < s->again.since_ns;
}

bool store_is_stuck(struct store *s, struct err *ret_cause)
{
    auto_lock(&s->lock);
    if (!is_stuck(s, clock_now_ns()))
        return false;
    *ret_cause = s->again.cause;
    return true;
}

bool store_retrying(struct store *s, char *buf, size_t size)
{
    auto_lock(&s->lock);
    uint64_t now_ns = clock_now_ns(), due_ns = s->again.due_ns, left_ns = due_ns - min_u64(due_ns, now_ns);
    bool is_repeated = s->again.attempts > 1 && now_ns < due_ns + NS_PER_SECOND;
    /* The store may ask for minutes, and all else is done by then. */
    bool is_last = now_ns < due_ns && now_ns > atomic_load(&s->success_ns) + 2 * NS_PER_SECOND;
    if (!is_stuck(s, now_ns) && !is_repeated && !is_last)
        return false;
    snprintf(buf, size, "attempt %u of %u in %" PRIu64 " s: %s", s->again.attempts + 1, s->retry.attempts_max,
             (left_ns + NS_PER_SECOND - 1) / NS_PER_SECOND, s->again.cause.text);
    return true;
}

/* ---- attempts ---------------------------------------------------------------------------------------------------- */

char *job_name(const struct store_job *j, char *buf)
{
    struct str key = str_sub(j->op == STORE_OP_LIST ? j->args.page.prefix : j->args.write.key, 0, 200);
    bool joined = str_ends(str_of(j->store->bucket), STR("/")); /* file:///: the root of all */
    snprintf(buf, STORE_JOB_NAME_MAX, "%s://%s%s%.*s", j->store->scheme->name, j->store->bucket, joined ? "" : "/",
             STR_FMT(key));
    return buf;
}

/* A copy of `s` in the job's block of strings, with a NUL behind it. Backends may use it as a C string if they
 * know that it contains no NUL. */
static struct str keep(struct store_job *j, struct str s)
{
    char *at = j->words + j->words_used;
    if (s.len)
        memcpy(at, s.ptr, s.len);
    at[s.len] = '\0';
    j->words_used += s.len + 1;
    return (struct str){at, s.len};
}

static const struct store_part *keep_parts(struct store_job *j, const struct store_part *parts, size_t count)
{
    struct store_part *mine = xcalloc(count, sizeof *mine);
    for (size_t i = 0; i < count; i++) {
        mine[i] = parts[i];
        mine[i].etag = keep(j, parts[i].etag);
    }
    return mine;
}

/* The strings of struct job_args. */
#define AT(f) offsetof(struct job_args, f)
static const size_t strings[] = {
    AT(write.key),   AT(object.key),       AT(object.etag), AT(write.upload_id),     AT(write.idempotency_token),
    AT(write.owner), AT(write.match),      AT(version),     AT(write.storage_class), AT(write.content_type),
    AT(page.prefix), AT(page.start_after), AT(page.token),  AT(page.end_before)};

static size_t words_size(const struct job_args *a)
{
    size_t size = 0;
    for (size_t i = 0; i < countof(strings); i++)
        size += ((const struct str *)(const void *)((const char *)a + strings[i]))->len + 1;
    for (size_t i = 0; i < a->parts.count; i++)
        size += a->parts.list[i].etag.len + 1;
    return size;
}

struct store_job *job_make(struct store *s, struct worker *w, enum store_op op, const struct job_args *args)
{
    struct store_job *j = xcalloc(1, s->backend->job_size);
    j->store = s;
    j->worker = w;
    j->op = op;
    j->args = *args;
    j->words = xcalloc(words_size(args), 1);
    struct job_args *a = &j->args;
    for (size_t i = 0; i < countof(strings); i++) {
        struct str *text = (struct str *)(void *)((char *)a + strings[i]);
        *text = keep(j, *text);
    }
    if (a->parts.count)
        a->parts.list = keep_parts(j, a->parts.list, a->parts.count);
    j->began_ns = clock_now_ns();
    return j;
}

struct store_job *job_again(const struct store_job *j)
{
    struct store_job *second = job_make(j->store, j->worker, j->op, &j->args);
    second->ctx = j->ctx;
    second->on_done = j->on_done;
    second->began_ns = j->began_ns;
    second->race.second = true;
    return second;
}

static void job_free(struct store_job *j)
{
    j->store->backend->release(j);
    if (j->args.parts.count)
        free((void *)(uintptr_t)j->args.parts.list);
    free(j->words);
    free(j);
}

/* on_done is never called from within the call that submitted the job. */
static void answer(struct store_job *j)
{
    const struct store_reply *r = &j->reply;
    j->reply.total_ns = clock_now_ns() - j->began_ns;
    if (j->op == STORE_OP_LIST)
        j->args.page.on_done(j->ctx, r, r->code < 0 ? NULL : j->objects, r->code < 0 ? 0 : j->object_count,
                             r->code < 0 ? STR_NULL : j->next_token);
    else if (j->on_done)
        j->on_done(j->ctx, r);
    if (j->race.rival)
        job_free(j->race.rival);
    job_free(j);
}

static void fire_answer(struct timer *t)
{
    answer(container_of(t, struct store_job, timer));
}

void job_attempt(struct store_job *j)
{
    unsigned requests = j->reply.requests, heads = j->reply.heads;
    j->args.new_connection |= j->reply.is_malformed;
    j->reply = (struct store_reply){.requests = requests, .heads = heads};
    j->attempt++;
    j->sent_ns = clock_now_ns();
    j->timer.fire = NULL;
    j->running = true;
    j->starting = true;
    j->store->backend->start(j);
    /* The attempt still runs: `starting` must be cleared. Or it has ended: job_done has set the timer and the job
     * still exists. */
    j->starting = false;
}

/* ---- the rate of attempts ---------------------------------------------------------------------------------------- */

enum { ATTEMPT_UNIT = 1000 };

/* A store that refuses many writes, or many pages of listings, is sent fewer a second. NULL: a GET or HEAD. The reader
 * of an object limits these itself. */
static struct store_pace *pace_of(const struct store_job *j)
{
    return j->op == STORE_OP_LIST ? &j->store->listings : job_is_read(j) ? NULL : &j->store->writes;
}

static void begin_attempt(struct store_job *j);

static void fire_attempt(struct timer *t)
{
    begin_attempt(container_of(t, struct store_job, timer));
}

/* While the store serves nothing, its rate delays the attempts: they may not wait longer than without it. */
static bool is_over_time(struct store_job *j)
{
    return j->reply.slow_down && pace_of(j) && atomic_load(&j->store->success_ns) < j->began_ns &&
           j->waited_ns > store_retry_limit_ns(j->store, &j->reply);
}

static void begin_attempt(struct store_job *j)
{
    struct store_pace *p = pace_of(j);
    uint64_t wait_ns = p ? rate_take(&p->rate, ATTEMPT_UNIT, clock_now_ns()) : 0;
    if (wait_ns == 0) {
        job_attempt(j);
        return;
    }
    j->waited_ns += wait_ns;
    if (is_over_time(j)) {
        answer(j);
        return;
    }
    j->timer.fire = fire_attempt;
    loop_timer_set(j->worker->loop, &j->timer, wait_ns);
}

static void limit_attempts(struct store_pace *p, uint64_t now_ns)
{
    pace_apply(&p->rate, ATTEMPT_UNIT, (uint64_t)(p->pace.per_second * ATTEMPT_UNIT), now_ns);
}

void job_pace_writes(struct store *s)
{
    pace_start(&s->writes.pace);
    limit_attempts(&s->writes, clock_now_ns());
}

static void note_answer(const struct store_job *j)
{
    struct store_pace *p = pace_of(j);
    if (!p || (j->reply.status == 0 && !j->reply.slow_down))
        return;
    auto_lock(&j->store->lock);
    uint64_t now_ns = clock_now_ns();
    pace_answered(&p->pace, j->sent_ns, now_ns, j->reply.slow_down);
    limit_attempts(p, now_ns);
}

/* ---- the end of an attempt --------------------------------------------------------------------------------------- */

static void give_up(struct store_job *j)
{
    char name[STORE_JOB_NAME_MAX];
    j->reply.code = err_fail(&j->reply.err, ERR_TIMEOUT, CIS_REPLY_TIMEOUT,
                             "%s: the reply stalled, or is far slower than others", job_name(j, name));
    j->reply.may_retry = true;
    telemetry_hedge(j->store->telemetry, "given_up");
}

bool job_is_read(const struct store_job *j)
{
    return j->op <= STORE_OP_LIST;
}

/* True: another attempt follows. */
static bool retry(struct store_job *j)
{
    uint64_t delay_ns;
    if (j->reply.turned_away) {
        j->attempt--;
        j->began_ns = clock_now_ns();
        j->waited_ns = 0;
    }
    if (j->op == STORE_OP_GET || j->args.is_of_write || is_over_time(j) ||
        !store_retry_delay(j->store, &j->reply, j->attempt, clock_now_ns() - j->began_ns, &delay_ns))
        return false;
    j->waited_ns += delay_ns;
    telemetry_retry(j->store->telemetry, &j->reply);
    assert(!j->race.second); /* if both attempts failed, the first error is reported */
    if (j->race.rival)
        job_free(j->race.rival);
    j->race.rival = NULL;
    j->race.is_over = false;
    j->store->backend->release(j);
    j->timer.fire = fire_attempt;
    loop_timer_set(j->worker->loop, &j->timer, delay_ns);
    return true;
}

void job_done(struct store_job *j)
{
    assert(j->running);
    bool at_once = !j->starting;
    j->running = false;
    loop_timer_cancel(j->worker->loop, &j->race.watch);
    if (j->reply.slow_down)
        hedge_slow_down(j->store->hedge, clock_now_ns());
    note_answer(j);
    if (j->race.gave_up && j->reply.code < 0)
        give_up(j);
    if (!(j = job_settle(j)))
        return;
    /* A cancelled read has no use for its reply; a write that succeeded nevertheless reports success. */
    if (j->cancelled && (j->reply.code < 0 || job_is_read(j))) {
        j->reply.code = err_set(&j->reply.err, ERR_CANCELLED, "cancelled");
        j->reply.may_retry = j->reply.is_malformed = false;
        j->reply.attempts_max = 0;
    }
    if (retry(j))
        return;
    if (at_once) {
        answer(j);
        return;
    }
    j->timer.fire = fire_answer;
    loop_timer_set(j->worker->loop, &j->timer, 0);
}

void job_fail(struct store_job *j, const struct err *err)
{
    j->reply.code = err_copy(&j->reply.err, err);
}

void job_count_request(struct store_job *j, const char *code, uint64_t first_byte_ns, uint64_t total_ns)
{
    j->reply.requests++;
    j->reply.first_byte_ns = first_byte_ns;
    telemetry_request(j->store->telemetry, j->op, code, first_byte_ns, total_ns);
    if (j->op == STORE_OP_GET && (first_byte_ns || j->race.lost))
        hedge_answered(j->store->hedge, HEDGE_GET, first_byte_ns ? first_byte_ns : total_ns);
}

struct store_job *job_submit(struct store_job *j)
{
    assert(loop_is_mine(j->worker->loop));
    begin_attempt(j);
    return j;
}

struct store_job *job_head(struct store_job *write, store_done *done, void *ctx)
{
    const struct job_args args = {.write.key = write->args.write.key, .is_of_write = true};
    struct store_job *j = job_make(write->store, write->worker, STORE_OP_HEAD, &args);
    j->ctx = ctx;
    j->on_done = done;
    return job_submit(j);
}

void job_cancel(struct store_job *j)
{
    if (j->cancelled)
        return;
    j->cancelled = true;
    if (j->running) {
        j->store->backend->stop(j);
        return;
    }
    /* Between two attempts, or with a reply that waits for the timer. */
    if (j->timer.fire == fire_attempt) {
        j->reply.code = err_set(&j->reply.err, ERR_CANCELLED, "cancelled");
        j->timer.fire = fire_answer;
        loop_timer_set(j->worker->loop, &j->timer, 0);
    }
}

void store_cancel(struct store_job *j)
{
    if (j->race.rival)
        job_cancel(j->race.rival);
    job_cancel(j);
}

static void resume(struct store_job *j)
{
    j->race.paused = false;
    if (j->running)
        j->store->backend->resume(j);
}

void store_resume(struct store_job *j)
{
    if (j->race.rival)
        resume(j->race.rival);
    resume(j);
}
