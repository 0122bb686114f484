/* SPDX-License-Identifier: Apache-2.0 */
/* Runs an exchange: its request waits for the rate, is sent, may wait for a retry, and ends. */
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

static void send_attempt(struct kube_exchange *x);

/* ---- the queue --------------------------------------------------------------------------------------------------- */

/* The one place that changes the state of an exchange. */
static void exchange_become(struct kube_exchange *x, enum kube_exchange_state next)
{
    static const unsigned allowed[] = {
        [KUBE_EXCHANGE_WAITING] = 1u << KUBE_EXCHANGE_QUEUED | 1u << KUBE_EXCHANGE_SENT | 1u << KUBE_EXCHANGE_WAITING |
                                  1u << KUBE_EXCHANGE_ENDING,
        [KUBE_EXCHANGE_QUEUED] = 1u << KUBE_EXCHANGE_WAITING | 1u << KUBE_EXCHANGE_ENDING,
        [KUBE_EXCHANGE_SENT] = 1u << KUBE_EXCHANGE_WAITING | 1u << KUBE_EXCHANGE_ENDING,
        [KUBE_EXCHANGE_ENDING] = 1u << KUBE_EXCHANGE_ENDING,
    };
    assert(allowed[x->state] >> next & 1);
    x->state = next;
}

static void unqueue(struct kube_exchange *x)
{
    list_remove(&x->kube->queue, &x->queued_node);
    x->kube->queued--;
}

void kube_exchange_end(struct kube_exchange *x)
{
    struct kube *k = x->kube;
    loop_timer_cancel(k->loop, &x->timer);
    list_remove(&k->exchanges, &x->node);
    if (x->request.on_done)
        x->request.on_done(x->request.ctx, &x->reply);
    json_free(x->reply.object);
    json_free(x->gathered);
    free(x->next_page);
    kube_http_request_done(&x->http);
    if (x->got.ptr)
        explicit_bzero(x->got.ptr, x->got.len);
    sbuf_done(&x->got);
    free(x);
}

/* on_done runs at the loop's next turn, never within the caller's call. */
void kube_exchange_settle(struct kube_exchange *x, const struct err *err)
{
    if (x->state == KUBE_EXCHANGE_QUEUED)
        unqueue(x);
    exchange_become(x, KUBE_EXCHANGE_ENDING);
    x->reply.code = err ? err_copy(&x->reply.err, err) : 0;
    if (err)
        json_free(take(&x->reply.object));
    loop_timer_set(x->kube->loop, &x->timer, 0);
}

void kube_exchange_settle_cancelled(struct kube_exchange *x, const char *why)
{
    struct err err;
    err_set(&err, ERR_CANCELLED, "cannot %s: %s", x->http.what, why);
    kube_exchange_settle(x, &err);
}

/* Exempt requests that hang must not hold up the others. */
static bool counts(const struct kube_exchange *x)
{
    return !x->is_watch && !x->request.exempt;
}

static void pump(struct kube *k)
{
    uint64_t wait = 0;
    struct kube_exchange *x;
    while ((x = list_first(&k->queue, struct kube_exchange, queued_node)) != NULL && k->sent < SENT_MAX &&
           (wait = rate_take(&k->rate, 1, loop_now_ns(k->loop))) == 0) {
        unqueue(x);
        send_attempt(x);
    }
    if (x && wait)
        loop_timer_set(k->loop, &k->pump, wait);
}

void kube_exchange_queue(struct kube_exchange *x)
{
    struct kube *k = x->kube;
    struct err err;
    uint64_t now = loop_now_ns(k->loop);
    if (x->request.exempt) {
        send_attempt(x);
        return;
    }
    if (k->queued >= k->queue_max) {
        err_fail(&err, ERR_NO_SPACE, CIS_API_LIMIT, "cannot %s: %u requests wait already", x->http.what, k->queued);
        kube_exchange_settle(x, &err);
        return;
    }
    exchange_become(x, KUBE_EXCHANGE_QUEUED);
    list_add(&k->queue, &x->queued_node);
    k->queued++;
    loop_timer_set(k->loop, &x->timer, x->deadline_ns > now ? x->deadline_ns - now : 0);
    pump(k);
}

/* Calls on_done, starts another attempt, or gives up a request that waited too long. */
void kube_exchange_timer(struct timer *t)
{
    struct kube_exchange *x = container_of(t, struct kube_exchange, timer);
    struct err err;
    if (x->state == KUBE_EXCHANGE_ENDING) {
        kube_exchange_end(x);
    } else if (x->state == KUBE_EXCHANGE_WAITING) {
        kube_exchange_queue(x);
    } else {
        err_fail(&err, ERR_TIMEOUT, CIS_API_LIMIT, "cannot %s: timeout while waiting for the request rate",
                 x->http.what);
        kube_exchange_settle(x, &err);
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
    struct kube_exchange *x = ctx;
    if (x->is_watch && web_status(x->web) == 200)
        return x->stream.on_bytes(x->request.ctx, bytes, len);
    sbuf_add(&x->got, (struct str){bytes, len});
    return x->got.overflow ? -ERR_NO_SPACE : 0;
}

static void on_answer(void *ctx, const struct web_result *r);

static void add_page(struct kube_exchange *x, struct sbuf *url)
{
    char number[24];
    sbuf_add(url, sbuf_str(&x->http.url));
    if (x->is_watch) {
        snprintf(number, sizeof number, "%llu", (unsigned long long)(x->stream.lasts_ns / NS_PER_SECOND));
        kube_http_request_add_query(url, "timeoutSeconds", str_of(number));
    } else if (x->request.verb == KUBE_LIST) {
        unsigned limit = x->request.page_size ? x->request.page_size : PAGE_DEFAULT;
        snprintf(number, sizeof number, "%u", limit);
        kube_http_request_add_query(url, "limit", str_of(number));
        if (x->next_page)
            kube_http_request_add_query(url, "continue", str_of(x->next_page));
    }
}

/* Timeout of this attempt; 0: no time is left, see *err. */
static uint64_t time_left(struct kube_exchange *x, uint64_t now, struct err *err)
{
    uint64_t left = x->deadline_ns > now ? x->deadline_ns - now : 0;
    if (x->is_watch)
        return x->stream.lasts_ns + WATCH_GRACE_NS;
    if (left == 0)
        err_set(err, ERR_TIMEOUT, "cannot %s: timeout", x->http.what);
    if (!x->request.fence)
        return left;
    /* A request that arrives after another replica began to lead would undo its work. */
    uint64_t lead = kube_lease_left_ns(x->request.fence);
    if (lead == 0)
        err_set(err, ERR_CANCELLED, "cannot %s: the lease has ended", x->http.what);
    x->fenced = lead < left;
    return min_u64(left, lead);
}

static void submit(struct kube_exchange *x, struct str token, uint64_t left)
{
    struct kube *k = x->kube;
    auto_sbuf url, bearer;
    struct web_header headers[4] = {{"Accept", STR("application/json")}, {"User-Agent", str_of(k->user_agent)}};
    size_t count = 2;
    sbuf_init(&url, 2 * URL_MAX);
    sbuf_init(&bearer, 80 << 10);
    add_page(x, &url);
    if (token.len) {
        sbuf_adds(&bearer, "Bearer ");
        sbuf_add(&bearer, token);
        headers[count++] = (struct web_header){"Authorization", sbuf_str(&bearer)};
    }
    if (x->http.content_type)
        headers[count++] = (struct web_header){"Content-Type", str_of(x->http.content_type)};
    x->web = web_submit(k->web, &(struct web_request){.method = x->http.method,
                                                      .url = url.ptr,
                                                      .headers = headers,
                                                      .header_count = count,
                                                      .body = x->http.body,
                                                      .body_len = x->http.body ? strlen(x->http.body) : 0,
                                                      .timeout_ns = left,
                                                      .stall_timeout_ns = x->is_watch ? x->stream.silence_ns : left,
                                                      .ctx = x,
                                                      .on_body = on_body,
                                                      .on_done = on_answer});
    if (bearer.ptr)
        explicit_bzero(bearer.ptr, bearer.len);
}

static void send_attempt(struct kube_exchange *x)
{
    struct kube *k = x->kube;
    struct err err;
    struct str token = STR_NULL;
    uint64_t now = loop_now_ns(k->loop);
    loop_timer_cancel(k->loop, &x->timer);
    exchange_become(x, KUBE_EXCHANGE_WAITING);
    uint64_t left = time_left(x, now, &err);
    if (left == 0 || bearer_token_get(&k->token, now, &token, &err) < 0) {
        kube_exchange_settle(x, &err);
        return;
    }
    sbuf_clear(&x->got);
    exchange_become(x, KUBE_EXCHANGE_SENT);
    x->attempt++;
    x->token_turn = k->token.turn;
    k->sent += counts(x);
    atomic_fetch_add_explicit(&k->requests_sent, 1, memory_order_relaxed);
    submit(x, token, left);
}

/* ---- reply ------------------------------------------------------------------------------------------------------- */

/* Requests the next page; NULL: the first one. */
static void next_page(struct kube_exchange *x, char *own_token)
{
    free(x->next_page);
    x->next_page = own_token;
    x->attempt = 0;
    x->deadline_ns = loop_now_ns(x->kube->loop) + x->request.timeout_ns;
    exchange_become(x, KUBE_EXCHANGE_WAITING);
    kube_exchange_queue(x);
}

static void list_restart(struct kube_exchange *x)
{
    x->restarts++;
    if (x->request.on_page) {
        x->request.on_page(x->request.ctx, NULL);
    } else {
        json_free(x->gathered);
        x->gathered = json_new_array();
    }
    if (!x->cancelled)
        next_page(x, NULL);
}

/* Takes the items of the page. True if another page was requested, or the request was cancelled. */
static bool list_page(struct kube_exchange *x, json *list)
{
    auto_json items = json_take_at(list, "items");
    struct str token = json_member_str(json_at(list, "metadata"), "continue");
    if (items && x->request.on_page)
        x->request.on_page(x->request.ctx, &items);
    else if (items)
        json_extend(x->gathered, take(&items));
    if (x->cancelled)
        return true;
    if (token.len)
        next_page(x, str_dup(token));
    return token.len > 0;
}

static void succeed(struct kube_exchange *x, json *own_object)
{
    auto_json object = own_object;
    struct err err;
    if (x->request.verb == KUBE_LIST) {
        const json *items = json_at(object, "items");
        if (items && json_kind_of(items) == 'n') /* some servers write an empty list so */
            json_set(object, "items", json_new_array());
        else if (json_kind_of(items) != '[') {
            err_set(&err, ERR_CORRUPT, "cannot %s: the reply is not a list", x->http.what);
            kube_exchange_settle(x, &err);
            return;
        }
        if (list_page(x, object))
            return;
        if (x->gathered)
            json_set(object, "items", take(&x->gathered));
    }
    x->reply.object = take(&object);
    kube_exchange_settle(x, NULL);
}

/* Computes the wait before a retry. False: *err is final. */
static bool may_try_again(struct kube_exchange *x, const struct answer_outcome *out, const struct err *err,
                          uint64_t *ret_wait)
{
    uint64_t now = loop_now_ns(x->kube->loop);
    bool passing =
        err->code == ERR_IO || err->code == ERR_TIMEOUT || err->code == ERR_AGAIN || err->code == ERR_CORRUPT;
    if (x->cancelled || x->is_watch || x->fenced || x->attempt >= ATTEMPTS_MAX)
        return false;
    if (out->unknown_to_server) {
        *ret_wait = 0;
        return bearer_token_renewed(&x->kube->token, x->token_turn, now);
    }
    if (!out->has_retry_after && (!passing || out->is_expired || !is_safe_to_repeat(x->request.verb)))
        return false;
    *ret_wait = clock_backoff_ns(x->attempt, BACKOFF_BASE_NS, BACKOFF_CAP_NS);
    if (out->has_retry_after) /* plus jitter, so that clients do not return together */
        *ret_wait += out->retry_after_ns;
    return now + *ret_wait < x->deadline_ns;
}

/* The error of libcurl, with the name of the request and the advice for the API server. */
static void transport_failed(struct kube_exchange *x, const struct web_result *r, struct err *err)
{
    struct str origin = str_of(x->kube->server);
    if (x->got.overflow) {
        err_fail(err, ERR_NO_SPACE, CIS_API_LIMIT, "cannot %s: the reply is longer than %zu bytes", x->http.what,
                 x->kube->body_max);
    } else if (x->fenced && r->err.code == ERR_TIMEOUT) {
        err_set(err, ERR_CANCELLED, "cannot %s: the lease has ended", x->http.what);
    } else if (x->cancelled) {
        err_set(err, ERR_CANCELLED, "cannot %s: cancelled", x->http.what);
    } else {
        err_copy(err, &r->err);
        err_wrap(err, "cannot %s", x->http.what);
        err_advise(err, CIS_API_SERVER_UNREACHABLE, STR_FMT(origin));
    }
}

static void failed(struct kube_exchange *x, const struct answer_outcome *out, const struct err *err)
{
    uint64_t wait;
    if (out->is_expired && x->request.verb == KUBE_LIST && x->next_page && x->restarts < RESTARTS_MAX)
        list_restart(x);
    else if (may_try_again(x, out, err, &wait)) {
        exchange_become(x, KUBE_EXCHANGE_WAITING);
        loop_timer_set(x->kube->loop, &x->timer, wait);
    } else {
        kube_exchange_settle(x, err);
    }
}

static void on_answer(void *ctx, const struct web_result *r)
{
    struct kube_exchange *x = ctx;
    struct kube *k = x->kube;
    struct answer_outcome out = {0};
    struct err err;
    json *object = NULL;
    int code = -ERR_IO;
    k->sent -= counts(x);
    x->reply.status = r->status;
    exchange_become(x, KUBE_EXCHANGE_WAITING);
    if (r->code < 0) {
        transport_failed(x, r, &err);
    } else if (x->is_watch && r->status == 200) {
        code = 0; /* the server ends a watch after its time */
    } else {
        struct answer a = {.what = x->http.what,
                           .http = r->status,
                           .type = web_reply_header(x->web, "Content-Type"),
                           .retry = web_reply_header(x->web, "Retry-After"),
                           .body = sbuf_str(&x->got)};
        code = answer_read(&a, &object, &out, &err);
    }
    x->web = NULL;
    sbuf_clear(&x->got);
    if (code < 0)
        failed(x, &out, &err);
    else if (x->is_watch)
        kube_exchange_settle(x, NULL);
    else
        succeed(x, object);
    pump(k);
}
