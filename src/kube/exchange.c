/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a request: it waits for the rate, is sent, may wait for a retry, and ends. */
#include "client_private.h"
#include "kube/lease.h"
#include "util/clock.h"
#include <assert.h>

enum {
    SENT_MAX = 64, /* requests in flight; a slow server gets no more, whatever the rate allows */
    ATTEMPTS_MAX = 10,
    RESTARTS_MAX = 5,
    PAGE_DEFAULT = 500
};

#define BACKOFF_BASE_NS (100 * NS_PER_MS)
#define BACKOFF_CAP_NS (5 * NS_PER_SECOND)
/* Time beyond the requested end of a watch. */
#define WATCH_GRACE_NS (15 * NS_PER_SECOND)

static void send_attempt(struct kube_job *j);

/* ---- the queue --------------------------------------------------------------------------------------------------- */

/* The one place that changes the state of a job. */
static void job_become(struct kube_job *j, enum kube_job_state next)
{
    static const unsigned allowed[] = {
        [KUBE_JOB_WAITING] =
            1u << KUBE_JOB_QUEUED | 1u << KUBE_JOB_SENT | 1u << KUBE_JOB_WAITING | 1u << KUBE_JOB_ENDING,
        [KUBE_JOB_QUEUED] = 1u << KUBE_JOB_WAITING | 1u << KUBE_JOB_ENDING,
        [KUBE_JOB_SENT] = 1u << KUBE_JOB_WAITING | 1u << KUBE_JOB_ENDING,
        [KUBE_JOB_ENDING] = 1u << KUBE_JOB_ENDING,
    };
    assert(allowed[j->state] >> next & 1);
    j->state = next;
}

static void unqueue(struct kube_job *j)
{
    list_remove(&j->kube->queue, &j->queued_node);
    j->kube->queued--;
}

void kube_job_end(struct kube_job *j)
{
    struct kube *k = j->kube;
    loop_timer_cancel(k->loop, &j->timer);
    list_remove(&k->jobs, &j->node);
    if (j->request.on_done)
        j->request.on_done(j->request.ctx, &j->reply);
    json_free(j->reply.object);
    json_free(j->gathered);
    free(j->next_page);
    kube_wire_done(&j->wire);
    if (j->got.ptr)
        explicit_bzero(j->got.ptr, j->got.len);
    sbuf_done(&j->got);
    free(j);
}

/* on_done runs at the loop's next turn, never within the caller's call. */
void kube_job_settle(struct kube_job *j, const struct err *err)
{
    if (j->state == KUBE_JOB_QUEUED)
        unqueue(j);
    job_become(j, KUBE_JOB_ENDING);
    j->reply.code = err ? err_copy(&j->reply.err, err) : 0;
    if (err)
        json_free(take(&j->reply.object));
    loop_timer_set(j->kube->loop, &j->timer, 0);
}

void kube_job_settle_cancelled(struct kube_job *j, const char *why)
{
    struct err err;
    err_set(&err, ERR_CANCELLED, "cannot %s: %s", j->wire.what, why);
    kube_job_settle(j, &err);
}

/* Exempt requests that hang must not hold up the others. */
static bool counts(const struct kube_job *j)
{
    return !j->is_watch && !j->request.exempt;
}

static void pump(struct kube *k)
{
    uint64_t wait = 0;
    struct kube_job *j;
    while ((j = list_first(&k->queue, struct kube_job, queued_node)) != NULL && k->sent < SENT_MAX &&
           (wait = token_bucket_take(&k->bucket, loop_now_ns(k->loop))) == 0) {
        unqueue(j);
        send_attempt(j);
    }
    if (j && wait)
        loop_timer_set(k->loop, &k->pump, wait);
}

void kube_job_queue(struct kube_job *j)
{
    struct kube *k = j->kube;
    struct err err;
    uint64_t now = loop_now_ns(k->loop);
    if (j->request.exempt) {
        send_attempt(j);
        return;
    }
    if (k->queued >= k->queue_max) {
        err_fail(&err, ERR_NO_SPACE, CIS_API_LIMIT, "cannot %s: %u requests wait already", j->wire.what, k->queued);
        kube_job_settle(j, &err);
        return;
    }
    job_become(j, KUBE_JOB_QUEUED);
    list_add(&k->queue, &j->queued_node);
    k->queued++;
    loop_timer_set(k->loop, &j->timer, j->deadline_ns > now ? j->deadline_ns - now : 0);
    pump(k);
}

/* Calls on_done, starts another attempt, or gives up a request that waited too long. */
void kube_job_timer(struct timer *t)
{
    struct kube_job *j = container_of(t, struct kube_job, timer);
    struct err err;
    if (j->state == KUBE_JOB_ENDING) {
        kube_job_end(j);
    } else if (j->state == KUBE_JOB_WAITING) {
        kube_job_queue(j);
    } else {
        err_fail(&err, ERR_TIMEOUT, CIS_API_LIMIT, "cannot %s: timeout while waiting for the request rate",
                 j->wire.what);
        kube_job_settle(j, &err);
    }
}

void kube_pump_timer(struct timer *t)
{
    pump(container_of(t, struct kube, pump));
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

/* Idempotent requests. A repeated delete returns NOT_FOUND, which is fine. A repeated merge patch with a version
 * returns a conflict: the caller reads the object again. */
static bool is_safe_to_repeat(enum kube_verb v)
{
    return v == KUBE_GET || v == KUBE_LIST || v == KUBE_DELETE || v == KUBE_APPLY || v == KUBE_MERGE_PATCH;
}

static int on_body(void *ctx, const char *bytes, size_t len)
{
    struct kube_job *j = ctx;
    if (j->is_watch && web_status(j->web) == 200)
        return j->stream.on_bytes(j->request.ctx, bytes, len);
    sbuf_add(&j->got, (struct str){bytes, len});
    return j->got.overflow ? -ERR_NO_SPACE : 0;
}

static void on_answer(void *ctx, const struct web_result *r);

static void add_page(struct kube_job *j, struct sbuf *url)
{
    char seconds[24];
    sbuf_add(url, sbuf_str(&j->wire.url));
    if (j->is_watch) {
        snprintf(seconds, sizeof seconds, "%llu", (unsigned long long)(j->stream.lasts_ns / NS_PER_SECOND));
        kube_wire_add_query(url, "timeoutSeconds", str_of(seconds));
    } else if (j->request.verb == KUBE_LIST) {
        unsigned limit = j->request.page_size ? j->request.page_size : PAGE_DEFAULT;
        snprintf(seconds, sizeof seconds, "%u", limit);
        kube_wire_add_query(url, "limit", str_of(seconds));
        if (j->next_page)
            kube_wire_add_query(url, "continue", str_of(j->next_page));
    }
}

/* Timeout of this attempt; 0: no time is left, see *err. */
static uint64_t time_left(struct kube_job *j, uint64_t now, struct err *err)
{
    uint64_t left = j->deadline_ns > now ? j->deadline_ns - now : 0;
    if (j->is_watch)
        return j->stream.lasts_ns + WATCH_GRACE_NS;
    if (left == 0)
        err_set(err, ERR_TIMEOUT, "cannot %s: timeout", j->wire.what);
    if (!j->request.fence)
        return left;
    /* A request that arrives after another replica began to lead would undo its work. */
    uint64_t lead = kube_lease_left_ns(j->request.fence);
    if (lead == 0)
        err_set(err, ERR_CANCELLED, "cannot %s: the lease has ended", j->wire.what);
    j->fenced = lead < left;
    return min_u64(left, lead);
}

static void submit(struct kube_job *j, struct str token, uint64_t left)
{
    struct kube *k = j->kube;
    auto_sbuf url, bearer;
    struct web_header headers[4] = {{"Accept", STR("application/json")}, {"User-Agent", str_of(k->user_agent)}};
    size_t count = 2;
    sbuf_init(&url, 2 * URL_MAX);
    sbuf_init(&bearer, 80 << 10);
    add_page(j, &url);
    if (token.len) {
        sbuf_adds(&bearer, "Bearer ");
        sbuf_add(&bearer, token);
        headers[count++] = (struct web_header){"Authorization", sbuf_str(&bearer)};
    }
    if (j->wire.content_type)
        headers[count++] = (struct web_header){"Content-Type", str_of(j->wire.content_type)};
    j->web = web_submit(k->web, &(struct web_request){.method = j->wire.method,
                                                      .url = url.ptr,
                                                      .headers = headers,
                                                      .header_count = count,
                                                      .body = j->wire.body,
                                                      .body_len = j->wire.body ? strlen(j->wire.body) : 0,
                                                      .timeout_ns = left,
                                                      .stall_timeout_ns = j->is_watch ? j->stream.silence_ns : left,
                                                      .ctx = j,
                                                      .on_body = on_body,
                                                      .on_done = on_answer});
    if (bearer.ptr)
        explicit_bzero(bearer.ptr, bearer.len);
}

static void send_attempt(struct kube_job *j)
{
    struct kube *k = j->kube;
    struct err err;
    struct str token = STR_NULL;
    uint64_t now = loop_now_ns(k->loop);
    loop_timer_cancel(k->loop, &j->timer);
    job_become(j, KUBE_JOB_WAITING);
    uint64_t left = time_left(j, now, &err);
    if (left == 0 || bearer_token_get(&k->token, now, &token, &err) < 0) {
        kube_job_settle(j, &err);
        return;
    }
    sbuf_clear(&j->got);
    job_become(j, KUBE_JOB_SENT);
    j->attempt++;
    j->token_turn = k->token.turn;
    k->sent += counts(j);
    atomic_fetch_add_explicit(&k->requests_sent, 1, memory_order_relaxed);
    submit(j, token, left);
}

/* ---- reply ------------------------------------------------------------------------------------------------------- */

/* Requests the next page; NULL: the first one. */
static void next_page(struct kube_job *j, char *own_token)
{
    free(j->next_page);
    j->next_page = own_token;
    j->attempt = 0;
    j->deadline_ns = loop_now_ns(j->kube->loop) + j->request.timeout_ns;
    job_become(j, KUBE_JOB_WAITING);
    kube_job_queue(j);
}

static void list_restart(struct kube_job *j)
{
    j->restarts++;
    if (j->request.on_page) {
        j->request.on_page(j->request.ctx, NULL);
    } else {
        json_free(j->gathered);
        j->gathered = json_new_array();
    }
    if (!j->cancelled)
        next_page(j, NULL);
}

/* Takes the items of the page. True if another page was requested, or the request was cancelled. */
static bool list_page(struct kube_job *j, json *list)
{
    auto_json items = json_take_at(list, "items");
    struct str token = json_member_str(json_at(list, "metadata"), "continue");
    if (items && j->request.on_page)
        j->request.on_page(j->request.ctx, &items);
    else if (items)
        json_extend(j->gathered, take(&items));
    if (j->cancelled)
        return true;
    if (token.len)
        next_page(j, str_dup(token));
    return token.len > 0;
}

static void succeed(struct kube_job *j, json *own_object)
{
    auto_json object = own_object;
    struct err err;
    if (j->request.verb == KUBE_LIST) {
        if (json_at(object, "items") == NULL) {
            err_set(&err, ERR_CORRUPT, "cannot %s: the reply is not a list", j->wire.what);
            kube_job_settle(j, &err);
            return;
        }
        if (list_page(j, object))
            return;
        if (j->gathered)
            json_set(object, "items", take(&j->gathered));
    }
    j->reply.object = take(&object);
    kube_job_settle(j, NULL);
}

/* Computes the wait before a retry. False: *err is final. */
static bool may_try_again(struct kube_job *j, const struct answer_outcome *out, const struct err *err,
                          uint64_t *ret_wait)
{
    uint64_t now = loop_now_ns(j->kube->loop);
    bool passing =
        err->code == ERR_IO || err->code == ERR_TIMEOUT || err->code == ERR_AGAIN || err->code == ERR_CORRUPT;
    if (j->cancelled || j->is_watch || j->fenced || j->attempt >= ATTEMPTS_MAX)
        return false;
    if (out->unknown_to_server) {
        *ret_wait = 0;
        return bearer_token_renewed(&j->kube->token, j->token_turn, now);
    }
    if (!out->has_retry_after && (!passing || out->is_expired || !is_safe_to_repeat(j->request.verb)))
        return false;
    *ret_wait = clock_backoff_ns(j->attempt, BACKOFF_BASE_NS, BACKOFF_CAP_NS);
    if (out->has_retry_after) /* plus jitter, so that clients do not return together */
        *ret_wait += out->retry_after_ns;
    return now + *ret_wait < j->deadline_ns;
}

/* The error of libcurl, with the name of the request and the advice for the API server. */
static void transport_failed(struct kube_job *j, const struct web_result *r, struct err *err)
{
    struct str origin = str_of(j->kube->server);
    if (j->got.overflow) {
        err_fail(err, ERR_NO_SPACE, CIS_API_LIMIT, "cannot %s: the reply is longer than %zu bytes", j->wire.what,
                 j->kube->body_max);
    } else if (j->fenced && r->err.code == ERR_TIMEOUT) {
        err_set(err, ERR_CANCELLED, "cannot %s: the lease has ended", j->wire.what);
    } else if (j->cancelled) {
        err_set(err, ERR_CANCELLED, "cannot %s: cancelled", j->wire.what);
    } else {
        err_copy(err, &r->err);
        err_wrap(err, "cannot %s", j->wire.what);
        err_advise(err, CIS_API_SERVER_UNREACHABLE, STR_FMT(origin));
    }
}

static void failed(struct kube_job *j, const struct answer_outcome *out, const struct err *err)
{
    uint64_t wait;
    if (out->is_expired && j->request.verb == KUBE_LIST && j->next_page && j->restarts < RESTARTS_MAX)
        list_restart(j);
    else if (may_try_again(j, out, err, &wait)) {
        job_become(j, KUBE_JOB_WAITING);
        loop_timer_set(j->kube->loop, &j->timer, wait);
    } else {
        kube_job_settle(j, err);
    }
}

static void on_answer(void *ctx, const struct web_result *r)
{
    struct kube_job *j = ctx;
    struct kube *k = j->kube;
    struct answer_outcome out = {0};
    struct err err;
    json *object = NULL;
    int code = -ERR_IO;
    k->sent -= counts(j);
    j->reply.status = r->status;
    job_become(j, KUBE_JOB_WAITING);
    if (r->code < 0) {
        transport_failed(j, r, &err);
    } else if (j->is_watch && r->status == 200) {
        code = 0; /* the server ends a watch after its time */
    } else {
        struct answer a = {.what = j->wire.what,
                           .http = r->status,
                           .type = web_reply_header(j->web, "Content-Type"),
                           .retry = web_reply_header(j->web, "Retry-After"),
                           .body = sbuf_str(&j->got)};
        code = answer_read(&a, &object, &out, &err);
    }
    j->web = NULL;
    sbuf_clear(&j->got);
    if (code < 0)
        failed(j, &out, &err);
    else if (j->is_watch)
        kube_job_settle(j, NULL);
    else
        succeed(j, object);
    pump(k);
}
