/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store.h"
#include "backend.h"
#include "creds/trust.h"
#include "denials.h"
#include "hedge.h"
#include "telemetry.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static struct store_retry with_defaults(struct store_retry r)
{
    if (r.attempts_max == 0)
        r.attempts_max = 8;
    if (r.elapsed_max_ns == 0)
        r.elapsed_max_ns = 1800 * NS_PER_SECOND;
    if (r.backoff_base_ns == 0)
        r.backoff_base_ns = 250 * NS_PER_MS;
    if (r.backoff_cap_ns == 0)
        r.backoff_cap_ns = 32 * NS_PER_SECOND;
    return r;
}

int store_open(const struct store_options *o, struct store **ret, struct err *err)
{
    struct store_uri uri;
    int r = store_uri_parse(o->uri, &uri, err);
    if (r < 0)
        return r;

    auto_store s = xcalloc(1, sizeof *s);
    s->backend = backend_of(uri.scheme);
    s->scheme = uri.scheme;
    s->caps = s->backend->caps;
    s->bucket = str_dup(uri.bucket);
    s->prefix = str_dup(uri.prefix);
    s->prefix_len = uri.prefix.len;
    s->ca = o->ca.len ? str_dup(o->ca) : NULL;
    s->ca_file = o->ca_file && !s->ca ? str_dup(str_of(o->ca_file)) : NULL;
    pthread_mutex_init(&s->lock, NULL);
    s->retry = with_defaults(o->retry);
    s->telemetry = telemetry_new(s->scheme->name);
    s->hedge = xcalloc(1, sizeof *s->hedge);
    hedge_init(s->hedge);
    s->refusals = xcalloc(1, sizeof *s->refusals);
    s->guard = o->guard;
    r = s->guard ? 0 : trust_environment(&s->guard, err);
    if (r == 0)
        r = s->backend->open(s, o, &uri, err);
    if (r < 0)
        return r;
    *ret = take(&s);
    return 0;
}

void store_set_retry(struct store *s, struct store_retry retry)
{
    auto_lock(&s->lock);
    s->retry = with_defaults(retry);
}

void store_free(struct store *s)
{
    if (!s)
        return;
    pthread_mutex_destroy(&s->lock);
    s->backend->close(s);
    telemetry_free(s->telemetry);
    free(s->hedge);
    free(s->refusals);
    free(s->bucket);
    free(s->prefix);
    free(s->endpoint);
    free(s->ca_file);
    free(s->ca);
    free(s);
}

int store_open_creds(const struct store *s, const struct store_options *o, const char *region, struct creds **ret,
                     struct err *err)
{
    return creds_open(&(struct creds_options){.kind = s->caps.creds,
                                              .anonymous = o->auth == STORE_AUTH_ANONYMOUS,
                                              .identity = o->identity,
                                              .profile = o->profile,
                                              .region = region},
                      ret, err);
}

const struct store_caps *store_caps(const struct store *s)
{
    return &s->caps;
}

const char *store_scheme(const struct store *s)
{
    return s->scheme->name;
}

const char *store_endpoint(const struct store *s)
{
    return s->endpoint;
}

struct str store_bucket(const struct store *s)
{
    return str_of(s->bucket);
}

struct str store_prefix(const struct store *s)
{
    return (struct str){s->prefix, s->prefix_len};
}

void store_trust(const struct store *s, struct web_options *ret)
{
    ret->ca_file = s->ca_file;
    ret->ca = s->ca ? str_of(s->ca) : STR_NULL;
    ret->guard = s->guard;
}

uint64_t store_reads_at_first(const struct store *s)
{
    return s->reads_at_first;
}

/* ---- a job ------------------------------------------------------------------------------------------------------- */

char *job_name(const struct store_job *j, char *buf)
{
    struct str key = str_sub(j->op == JOB_LIST ? j->args.page.prefix : j->args.key, 0, 200);
    bool joined = str_ends(str_of(j->store->bucket), STR("/")); /* file:///: the root of all */
    snprintf(buf, JOB_NAME_MAX, "%s://%s%s%.*s", j->store->scheme->name, j->store->bucket, joined ? "" : "/",
             STR_FMT(key));
    return buf;
}

/* A copy of `s` in the job's one block of words, NUL behind it: backends may use it as a C string where they know that
 * it holds none. */
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
static const size_t strings[] = {AT(key),
                                 AT(object.key),
                                 AT(object.etag),
                                 AT(upload_id),
                                 AT(idempotency_token),
                                 AT(owner),
                                 AT(match),
                                 AT(storage_class),
                                 AT(content_type),
                                 AT(page.prefix),
                                 AT(page.start_after),
                                 AT(page.token),
                                 AT(page.end_before)};

static size_t words_size(const struct job_args *a)
{
    size_t size = 0;
    for (size_t i = 0; i < countof(strings); i++)
        size += ((const struct str *)(const void *)((const char *)a + strings[i]))->len + 1;
    for (size_t i = 0; i < a->part_count; i++)
        size += a->parts[i].etag.len + 1;
    return size;
}

static struct store_job *job_new(struct store *s, struct worker *w, enum job_op op, const struct job_args *args)
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
    if (a->part_count)
        a->parts = keep_parts(j, a->parts, a->part_count);
    j->began_ns = clock_now_ns();
    return j;
}

struct store_job *job_again(const struct store_job *j)
{
    struct store_job *second = job_new(j->store, j->worker, j->op, &j->args);
    second->ctx = j->ctx;
    second->on_done = j->on_done;
    second->began_ns = j->began_ns;
    second->second = true;
    return second;
}

static void job_free(struct store_job *j)
{
    j->store->backend->release(j);
    if (j->args.part_count)
        free((void *)(uintptr_t)j->args.parts);
    free(j->words);
    free(j);
}

/* Rule of the house: on_done is not called from within the call that submitted the job. */
static void answer(struct store_job *j)
{
    const struct store_reply *r = &j->reply;
    j->reply.total_ns = clock_now_ns() - j->began_ns;
    if (j->op == JOB_LIST)
        j->args.page.on_done(j->ctx, r, r->code < 0 ? NULL : j->objects, r->code < 0 ? 0 : j->object_count,
                             r->code < 0 ? STR_NULL : j->next_token);
    else if (j->on_done)
        j->on_done(j->ctx, r);
    if (j->rival)
        job_free(j->rival);
    job_free(j);
}

static void fire_answer(struct timer *t)
{
    answer(container_of(t, struct store_job, timer));
}

void job_attempt(struct store_job *j)
{
    unsigned requests = j->reply.requests, looks = j->reply.looks;
    j->reply = (struct store_reply){.requests = requests, .looks = looks};
    j->attempt++;
    j->running = true;
    j->starting = true;
    j->store->backend->start(j);
    /* Not ended yet: then `starting` must be lowered; ended: job_done has set the timer and the job still stands. */
    j->starting = false;
}

static void fire_attempt(struct timer *t)
{
    job_attempt(container_of(t, struct store_job, timer));
}

static void give_up(struct store_job *j)
{
    char name[JOB_NAME_MAX];
    j->reply.code =
        err_fail(&j->reply.err, ERR_TIMEOUT, CIS_REPLY_TIMEOUT,
                 "%s: the answer stands still in its middle, or is far slower than others", job_name(j, name));
    j->reply.may_retry = true;
    telemetry_hedge(j->store->telemetry, "given_up");
}

static bool is_read(const struct store_job *j)
{
    return j->op <= JOB_LIST;
}

void job_done(struct store_job *j)
{
    uint64_t delay_ns;
    assert(j->running);
    j->running = false;
    loop_timer_cancel(j->worker->loop, &j->watch);
    if (j->reply.slow_down)
        hedge_slow_down(j->store->hedge, clock_now_ns());
    /* A read that was called back has no use for its answer; a write that was done all the same says so. */
    if (j->cancelled && (j->reply.code < 0 || is_read(j))) {
        j->reply.code = err_set(&j->reply.err, ERR_CANCELLED, "cancelled");
        j->reply.may_retry = false;
        j->reply.attempts_max = 0;
    }
    if (j->op == JOB_GET && j->reply.code == 0 && j->answered)
        hedge_body(j->store->hedge, j->args.len, clock_now_ns() - j->answered_ns);
    if (j->gave_up && j->reply.code < 0)
        give_up(j);
    if (j->reply.turned_away) {
        j->attempt--;
        j->began_ns = clock_now_ns();
    }
    if (j->op != JOB_GET &&
        store_retry_delay(j->store, &j->reply, j->attempt, clock_now_ns() - j->began_ns, &delay_ns)) {
        telemetry_retry(j->store->telemetry, &j->reply);
        j->store->backend->release(j);
        j->timer.fire = fire_attempt;
        loop_timer_set(j->worker->loop, &j->timer, delay_ns);
        return;
    }
    bool at_once = !j->starting;
    if (j->rival && !(j = race_settle(j)))
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
    if (j->op == JOB_GET && (first_byte_ns || j->lost))
        hedge_answered(j->store->hedge, first_byte_ns ? first_byte_ns : total_ns);
}

static struct store_job *submit(struct store_job *j)
{
    assert(loop_is_mine(j->worker->loop));
    job_attempt(j);
    return j;
}

void job_call_off(struct store_job *j)
{
    if (j->cancelled)
        return;
    j->cancelled = true;
    if (j->running) {
        j->store->backend->stop(j);
        return;
    }
    /* Between two attempts, or answered already and waiting for its turn. */
    if (j->timer.fire == fire_attempt) {
        j->reply.code = err_set(&j->reply.err, ERR_CANCELLED, "cancelled");
        j->timer.fire = fire_answer;
        loop_timer_set(j->worker->loop, &j->timer, 0);
    }
}

void store_cancel(struct store_job *j)
{
    if (j->rival)
        job_call_off(j->rival);
    job_call_off(j);
}

static void resume(struct store_job *j)
{
    j->paused = false;
    if (j->running)
        j->store->backend->resume(j);
}

void store_resume(struct store_job *j)
{
    if (j->rival)
        resume(j->rival);
    resume(j);
}

static struct store_retry policy_of(struct store *s)
{
    auto_lock(&s->lock);
    return s->retry;
}

/* A first failure is shown only while nothing else succeeds: a retry mostly ends it. */
static void note_retry(struct store *s, const struct store_reply *r, unsigned attempts, uint64_t delay_ns)
{
    log_event(LOG_INFO, "retrying", "cause", r->err.text, "attempt", log_u64(attempts + 1), "in_ms",
              log_u64(delay_ns / NS_PER_MS), NULL);
    auto_lock(&s->lock);
    uint64_t now_ns = clock_now_ns();
    if (s->again.attempts == 0 || atomic_load(&s->success_ns) > s->again.since_ns)
        s->again.since_ns = now_ns;
    snprintf(s->again.cause, sizeof s->again.cause, "%s", r->err.text);
    s->again.attempts = attempts;
    s->again.due_ns = now_ns + delay_ns;
}

bool store_retry_delay(struct store *s, const struct store_reply *r, unsigned attempts, uint64_t elapsed_ns,
                       uint64_t *ret_delay_ns)
{
    const struct store_retry policy = policy_of(s);
    bool passes = r->may_retry || r->attempts_max || r->is_malformed;
    if (r->code >= 0 || !passes || (!r->turned_away && attempts >= policy.attempts_max))
        return false;
    if (r->attempts_max && attempts >= r->attempts_max) {
        denials_note_final(s->refusals);
        return false;
    }
    /* Half of it is certain: were all of it drawn, a few objects in a hundred would use up their attempts within a
     * store's restart of six seconds. */
    unsigned doublings = attempts ? (unsigned)min_u64(attempts - 1, 20) : 0;
    uint64_t least = min_u64(policy.backoff_base_ns << doublings, policy.backoff_cap_ns) / 2;
    uint64_t drawn = clock_backoff_ns(doublings + 1, policy.backoff_base_ns, policy.backoff_cap_ns) / 2;
    uint64_t delay = max_u64(least + drawn, r->retry_after_ns);
    if (!r->turned_away && elapsed_ns + delay > policy.elapsed_max_ns)
        return false;
    hedge_retried(s->hedge);
    if (!r->turned_away)
        note_retry(s, r, attempts, delay);
    *ret_delay_ns = delay;
    return true;
}

uint64_t store_patience_ns(struct store *s, const struct store_reply *r)
{
    const struct store_retry policy = policy_of(s);
    uint64_t sum = 0;
    for (unsigned i = 0; i + 1 < policy.attempts_max && sum < policy.elapsed_max_ns; i++)
        sum += max_u64(min_u64(policy.backoff_base_ns << min_u64(i, 20), policy.backoff_cap_ns), r->retry_after_ns);
    return min_u64(sum, policy.elapsed_max_ns);
}

bool store_retrying(struct store *s, char *buf, size_t size)
{
    auto_lock(&s->lock);
    uint64_t now_ns = clock_now_ns(), due_ns = s->again.due_ns, left_ns = due_ns - min_u64(due_ns, now_ns);
    bool is_stuck = now_ns > s->again.since_ns + 2 * NS_PER_SECOND && atomic_load(&s->success_ns) < s->again.since_ns;
    bool is_repeated = s->again.attempts > 1 && now_ns < due_ns + NS_PER_SECOND;
    if (s->again.attempts == 0 || (!is_stuck && !is_repeated))
        return false;
    snprintf(buf, size, "attempt %u of %u in %" PRIu64 " s: %s", s->again.attempts + 1, s->retry.attempts_max,
             (left_ns + NS_PER_SECOND - 1) / NS_PER_SECOND, s->again.cause);
    return true;
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

struct store_job *store_get(struct store *s, struct worker *w, const struct store_get *g)
{
    struct job_args args = {.key = g->object->key,
                            .object = *g->object,
                            .offset = g->offset,
                            .len = g->len,
                            .rate = g->rate,
                            .patient = g->patient,
                            .on_head = g->on_head,
                            .on_data = g->on_data};
    struct store_job *j = job_new(s, w, JOB_GET, &args);
    j->ctx = g->ctx;
    j->on_done = g->on_done;
    j->attempt = g->attempts;
    return submit(j);
}

static struct store_job *submit_for(struct store_job *j, store_done *done, void *ctx)
{
    j->on_done = done;
    j->ctx = ctx;
    return submit(j);
}

struct store_job *store_head(struct store *s, struct worker *w, struct str key, store_done *done, void *ctx)
{
    return submit_for(job_new(s, w, JOB_HEAD, &(struct job_args){.key = key}), done, ctx);
}

struct store_job *store_head_digest(struct store *s, struct worker *w, struct str key, uint64_t size_bytes,
                                    enum hash_kind kind, store_done *done, void *ctx)
{
    struct job_args args = {.key = key, .alike_bytes = size_bytes, .digest_kind = kind};
    return submit_for(job_new(s, w, JOB_HEAD, &args), done, ctx);
}

struct store_job *store_delete(struct store *s, struct worker *w, struct str key, store_done *done, void *ctx)
{
    return submit_for(job_new(s, w, JOB_DELETE, &(struct job_args){.key = key}), done, ctx);
}

struct store_job *store_upload_sweep(struct store *s, struct worker *w, struct str key, store_done *done, void *ctx)
{
    return submit_for(job_new(s, w, JOB_SWEEP, &(struct job_args){.key = key}), done, ctx);
}

struct store_job *store_list_page(struct store *s, struct worker *w, const struct store_page *p)
{
    return submit_for(job_new(s, w, JOB_LIST, &(struct job_args){.page = *p}), NULL, p->ctx);
}

static struct store_job *put(struct store *s, struct worker *w, enum job_op op, const struct store_put *p)
{
    struct job_args args = {.key = p->key,
                            .condition = p->condition,
                            .match = p->match,
                            .idempotency_token = p->idempotency_token,
                            .owner = p->owner,
                            .storage_class = str_of(p->storage_class),
                            .content_type = str_of(p->content_type),
                            .body = p->body,
                            .rate = p->rate};
    return submit_for(job_new(s, w, op, &args), p->on_done, p->ctx);
}

struct store_job *store_put(struct store *s, struct worker *w, const struct store_put *p)
{
    return put(s, w, JOB_PUT, p);
}

struct store_job *store_probe(struct store *s, struct worker *w, const struct store_put *p)
{
    return put(s, w, JOB_PROBE, p);
}

bool store_wants_probe(const struct store *s)
{
    return s->backend->wants_probe && s->backend->wants_probe(s);
}

bool store_honours(const struct store *s, enum store_if condition, bool multipart)
{
    return !s->backend->honours || s->backend->honours(s, condition, multipart);
}

static struct job_args upload_args(const struct store_upload *u)
{
    return (struct job_args){.key = u->key,
                             .upload_id = u->upload_id,
                             .condition = u->condition,
                             .match = u->match,
                             .idempotency_token = u->idempotency_token,
                             .owner = u->owner,
                             .storage_class = str_of(u->storage_class),
                             .content_type = str_of(u->content_type),
                             .digest_kind = u->digest_kind,
                             .part_bytes = u->part_bytes};
}

struct store_job *store_upload_begin(struct store *s, struct worker *w, const struct store_upload *u, store_done *done,
                                     void *ctx)
{
    struct job_args args = upload_args(u);
    return submit_for(job_new(s, w, JOB_BEGIN, &args), done, ctx);
}

struct store_job *store_upload_part(struct store *s, struct worker *w, const struct store_upload *u, unsigned number,
                                    const struct store_body *body, struct rate *rate, store_done *done, void *ctx)
{
    struct job_args args = upload_args(u);
    args.number = number;
    args.body = *body;
    args.rate = rate;
    return submit_for(job_new(s, w, JOB_PART, &args), done, ctx);
}

struct store_job *store_upload_complete(struct store *s, struct worker *w, const struct store_upload *u,
                                        const struct store_part *parts, size_t count, const struct digest *whole,
                                        store_done *done, void *ctx)
{
    struct job_args args = upload_args(u);
    args.parts = parts;
    args.part_count = count;
    args.whole = whole ? *whole : (struct digest){0};
    return submit_for(job_new(s, w, JOB_COMPLETE, &args), done, ctx);
}

struct store_job *store_upload_abort(struct store *s, struct worker *w, const struct store_upload *u, store_done *done,
                                     void *ctx)
{
    struct job_args args = upload_args(u);
    return submit_for(job_new(s, w, JOB_ABORT, &args), done, ctx);
}
