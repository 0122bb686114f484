/* SPDX-License-Identifier: Apache-2.0 */
#include "io/web.h"
#include "util/clock.h"
#include "web_error.h"
#include "web_private.h"
#include <assert.h>
#include <malloc.h>
#include <pthread.h>

enum { CONNECTIONS_DEFAULT = 64 };

/* How often jobs are checked for a stall. */
#define SWEEP_NS (NS_PER_SECOND / 4)

static void set_sweep(struct web *w)
{
    uint64_t wait_ns = min_u64(SWEEP_NS, w->options.stall_timeout_ns / 4 + 1);
    w->sweep_due_ns = loop_now_ns(w->loop) + wait_ns;
    loop_timer_set(w->loop, &w->sweep, wait_ns);
}

/* ---- a job's life ------------------------------------------------------------------------------------------------ */

static struct web_job *job_new(struct web *w)
{
    struct web_job *j = list_pop(&w->unused, struct web_job, node);
    if (!j) {
        j = xcalloc(1, sizeof *j);
        j->web = w;
        j->rate_timer.fire = web_transfer_rate_wait_ended;
    }
    /* One a request, which costs a microsecond. libcurl before 8.1 appends a header line that begins with a blank to
     * the last header of the handle, which is freed by then (https://github.com/curl/curl/issues/11101). */
    j->easy = curl_easy_init();
    if (!j->easy)
        out_of_memory();
    web_transfer_prepare(j);
    return j;
}

static void job_free(struct web_job *j)
{
    free(j->headers.text);
    free(j->headers.lines);
    free(j);
}

/* The one place that changes the state of a job. */
static void job_become(struct web_job *j, enum web_job_state next)
{
    static const unsigned allowed[] = {
        [WEB_JOB_FREE] = 1u << WEB_JOB_WAITING,
        [WEB_JOB_WAITING] = 1u << WEB_JOB_RUNNING | 1u << WEB_JOB_ENDED,
        [WEB_JOB_RUNNING] = 1u << WEB_JOB_ENDED,
        [WEB_JOB_ENDED] = 1u << WEB_JOB_FREE,
    };
    assert(allowed[j->state] >> next & 1);
    j->state = next;
}

struct web_job *web_submit(struct web *w, const struct web_request *r)
{
    assert(loop_is_mine(w->loop) && r->on_done);
    struct web_job *j = job_new(w);
    j->request = *r;
    j->request.url = j->request.method = NULL;
    j->request.headers = NULL;
    j->request.ca = STR_NULL;
    j->request.connect_to = NULL;
    j->head_reported = j->paused = j->address.has_resolve = j->address.has_order = false;
    j->aborted = j->socket_errno = 0;
    j->sends = 0;
    j->is_repeat = j->is_sent = j->was_read = false;
    j->rate_wait_until_ns = j->trailer_bytes = 0;
    j->error[0] = j->blocked_address[0] = '\0';
    j->progress = (struct web_job_progress){.started_ns = loop_now_ns(w->loop), .moved_ns = loop_now_ns(w->loop)};
    j->start.code = web_transfer_set(j, r, &j->start.err);
    j->address.host = r->connect_to ? NULL : web_host_of(w, r->url);
    job_become(j, WEB_JOB_WAITING);
    if (list_is_empty(&w->live))
        set_sweep(w);
    list_add(&w->live, &j->node);
    web_job_schedule(j, STEP_START);
    return j;
}

static int job_outcome(struct web_job *j, unsigned steps, struct err *err)
{
    char *url = NULL;
    long sys = 0;
    curl_easy_getinfo(j->easy, CURLINFO_EFFECTIVE_URL, &url);
    struct str origin = web_origin(url);
    if (steps & STEP_CANCEL)
        return err_set(err, ERR_CANCELLED, "a request to '%.*s' was cancelled", STR_FMT(origin));
    if (j->start.code < 0)
        return err_copy(err, &j->start.err);
    if (j->aborted < 0)
        return err_set(err, (enum err_code) - j->aborted, "a request to '%.*s' was stopped by its %s", STR_FMT(origin),
                       j->head_reported || !j->progress.sent ? "reader" : "sender");
    if (web_transfer_is_flooded(j))
        return web_translate(&(struct web_failure){.code = CURLE_OUT_OF_MEMORY, .url = url, .connected = true}, err);
    if (steps & STEP_TIMEOUT)
        return web_translate(&(struct web_failure){.code = CURLE_OPERATION_TIMEDOUT,
                                                   .detail = j->timeout_cause,
                                                   .url = url,
                                                   .has_proxy = !j->web->hosts_wanted},
                             err);
    /* libcurl reports success for a head that was cut after its first line. */
    if (j->result == CURLE_OK && !j->head_reported)
        return web_translate(&(struct web_failure){.code = CURLE_PARTIAL_FILE, .url = url}, err);
    if (j->result == CURLE_OK)
        return 0;
    if (j->blocked_address[0])
        return web_socket_blocked(j, url, err);
    long connects = 0;
    char *address = NULL;
    curl_easy_getinfo(j->easy, CURLINFO_OS_ERRNO, &sys);
    curl_easy_getinfo(j->easy, CURLINFO_NUM_CONNECTS, &connects);
    curl_easy_getinfo(j->easy, CURLINFO_PRIMARY_IP, &address);
    struct web_failure f = {.code = j->result,
                            .detail = j->error,
                            .url = url,
                            .sys = j->socket_errno ? j->socket_errno : (int)sys,
                            .connected = connects > 0 || (address && address[0]),
                            .has_proxy = !j->web->hosts_wanted};
    return web_translate(&f, err);
}

/* Did a new connection bring no reply? A request over a kept connection is not counted: libcurl sends it again. */
static bool was_fruitless(const struct web_job *j, int code)
{
    long connects = 0;
    if ((code != -ERR_IO && code != -ERR_TIMEOUT) || j->progress.first_byte_ns || j->is_repeat)
        return false;
    switch (j->result) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT: /* of the connection: the only timeout that libcurl knows */
        return true;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
        return curl_easy_getinfo(j->easy, CURLINFO_NUM_CONNECTS, &connects) == CURLE_OK && connects > 0;
    default:
        return false;
    }
}

static void end_job(struct web_job *j, unsigned steps)
{
    struct web *w = j->web;
    struct web_result r = {.sends = j->sends,
                           .body_bytes = j->progress.received,
                           .first_byte_ns = j->progress.first_byte_ns,
                           .total_ns = loop_now_ns(w->loop) - j->progress.started_ns};
    r.code = job_outcome(j, steps, &r.err);
    r.status = j->start.code < 0 ? 0 : web_status(j);
    bool fruitless = (steps & STEP_SETTLE) && was_fruitless(j, r.code);
    r.turned_away = fruitless && !j->was_read;
    r.closed = fruitless && j->result != CURLE_COULDNT_CONNECT && j->result != CURLE_OPERATION_TIMEDOUT;
    if (r.turned_away)
        w->connects.turned_away++;
    if (j->address.is_waiting)
        web_host_stop_waiting(j);
    if (j->state == WEB_JOB_RUNNING && j->address.host)
        web_host_job_ended(j, j->progress.first_byte_ns > 0,
                           !j->progress.first_byte_ns && (steps & (STEP_SETTLE | STEP_TIMEOUT)) && !j->aborted);
    bool was_running = j->state == WEB_JOB_RUNNING;
    job_become(j, WEB_JOB_ENDED); /* no step follows */
    if (was_running)
        curl_multi_remove_handle(w->multi, j->easy);
    loop_timer_cancel(w->loop, &j->rate_timer);
    if (j->paused_socket)
        j->paused_socket->is_paused = false;
    j->paused_socket = NULL;
    list_remove(&w->live, &j->node);
    j->request.on_done(j->request.ctx, &r);
    assert(!j->steps);
    curl_easy_cleanup(take(&j->easy));
    job_become(j, WEB_JOB_FREE);
    list_add_first(&w->unused, &j->node);
}

static void job_start(struct web_job *j)
{
    assert(j->state == WEB_JOB_WAITING);
    if (web_host_must_wait(j))
        return;
    web_host_choose_address(j, false);
    job_become(j, WEB_JOB_RUNNING);
    CURLMcode r = curl_multi_add_handle(j->web->multi, j->easy);
    if (r != CURLM_OK) {
        j->start.code = err_set(&j->start.err, ERR_INTERNAL, "libcurl refused a request: %s", curl_multi_strerror(r));
        end_job(j, 0);
    }
}

/* Nothing was sent yet, or only a read: start the request again on a connection to another address. */
static void job_go_elsewhere(struct web_job *j)
{
    if (j->state != WEB_JOB_RUNNING || j->head_reported)
        return;
    curl_multi_remove_handle(j->web->multi, j->easy);
    web_host_choose_address(j, true);
    curl_multi_add_handle(j->web->multi, j->easy);
}

static void job_step(struct web_job *j)
{
    unsigned steps = j->steps;
    j->steps = 0;
    if ((steps & (STEP_CANCEL | STEP_SETTLE | STEP_TIMEOUT)) || j->start.code < 0)
        end_job(j, steps);
    else if (steps & STEP_START)
        job_start(j);
    else if (steps & STEP_NEXT_ADDRESS)
        job_go_elsewhere(j);
    else if (steps & STEP_RESUME)
        curl_easy_pause(j->easy, CURLPAUSE_CONT);
    else if (steps & STEP_RUN) {
        /* Lets libcurl run it now, and not at its next timer. */
        curl_easy_pause(j->easy, CURLPAUSE_RECV);
        curl_easy_pause(j->easy, CURLPAUSE_CONT);
    }
}

/* ---- a turn ------------------------------------------------------------------------------------------------------ */

static void take_results(struct web *w)
{
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(w->multi, &left)) != NULL;) {
        struct web_job *j = NULL;
        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&j);
        j->result = j->is_repeat ? CURLE_GOT_NOTHING : m->data.result;
        web_job_schedule(j, STEP_SETTLE);
    }
}

static void take_steps(struct web *w)
{
    struct web_job *j;
    struct list batch = w->scheduled;
    w->scheduled = (struct list){0};
    while ((j = list_pop(&batch, struct web_job, scheduled_node)) != NULL)
        job_step(j);
}

/* Ends jobs first, so that jobs that start find free connections. Then libcurl sends the requests. */
static void web_turn(struct deferred *t)
{
    struct web *w = container_of(t, struct web, tail);
    int running;
    take_results(w);
    take_steps(w);
    if (!list_is_empty(&w->scheduled))
        take_steps(w);
    if (w->timeout_is_due) {
        w->timeout_is_due = false;
        curl_multi_socket_action(w->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        take_results(w);
    }
}

static uint64_t stall_timeout(const struct web_job *j)
{
    return j->request.stall_timeout_ns ? j->request.stall_timeout_ns : j->web->options.stall_timeout_ns;
}

static void check_timeouts(struct timer *t)
{
    struct web *w = container_of(t, struct web, sweep);
    uint64_t now = loop_now_ns(w->loop), late_ns = now - w->sweep_due_ns;
    struct web_job *j;
    list_foreach (&w->live, j, node) {
        const char *what = NULL;
        /* While the loop is late, on a busy machine or in a frozen container, bytes wait to be read. */
        j->progress.moved_ns = min_u64(j->progress.moved_ns + late_ns, now);
        if (j->request.timeout_ns && now - j->progress.started_ns >= j->request.timeout_ns)
            what = "the request took longer than its timeout";
        else if (!j->paused && !j->rate_wait_until_ns && now - j->progress.moved_ns >= stall_timeout(j))
            what = j->request.stall_bytes ? "too few bytes were transferred within the timeout"
                                          : "no byte was transferred within the timeout";
        if (what) {
            j->timeout_cause = web_host_is_known(j) ? what : WEB_UNRESOLVED;
            web_job_schedule(j, STEP_TIMEOUT);
        }
    }
    for (size_t i = 0; i < w->socket_room; i++) {
        if (!w->sockets[i])
            continue;
        web_socket_check_handshake(w->sockets[i]);
        web_host_check_connect(w->sockets[i]);
    }
    if (!list_is_empty(&w->live))
        set_sweep(w);
}

void web_cancel(struct web_job *j)
{
    assert(j->state == WEB_JOB_WAITING || j->state == WEB_JOB_RUNNING);
    web_job_schedule(j, STEP_CANCEL);
}

void web_resume(struct web_job *j)
{
    if (!j->paused)
        return;
    j->paused = false;
    j->progress.moved_ns = loop_now_ns(j->web->loop);
    j->progress.moved_bytes = 0;
    web_job_schedule(j, STEP_RESUME);
}

void web_set_idle_max(struct web *w, unsigned connections)
{
    if (connections != w->idle_max)
        curl_multi_setopt(w->multi, CURLMOPT_MAXCONNECTS,
                          (long)(connections ? connections : 1)); /* 0: libcurl's default */
    w->idle_max = connections;
    web_sockets_shut_idle(w);
}

struct web_connects web_connects(const struct web *w)
{
    return w->connects;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* libcurl allocates its receive buffer for each request. By default glibc returns such a large block to the kernel.
 * The page faults of the next allocation cost as much as the copy of 100 KiB: 30 us a request, measured. */
void web_keep_heap(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

static void curl_begin(void)
{
    curl_global_init(CURL_GLOBAL_ALL);
}

int web_new(struct loop *l, const struct web_options *o, struct web **ret, struct err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, curl_begin);
    auto_web w = xcalloc(1, sizeof *w);
    w->loop = l;
    w->options = *o;
    w->options.connections_max = o->connections_max ? o->connections_max : CONNECTIONS_DEFAULT;
    w->options.connect_timeout_ns = o->connect_timeout_ns ? o->connect_timeout_ns : 10 * NS_PER_SECOND;
    w->options.stall_timeout_ns = o->stall_timeout_ns ? o->stall_timeout_ns : WEB_STALL_NS;
    w->ca_file = o->ca_file ? str_dup(str_of(o->ca_file)) : NULL;
    w->ca = str_dup(o->ca);
    w->certificate = str_dup(o->certificate);
    w->key = str_dup(o->key);
    w->hosts_wanted = web_hosts_wanted();
    w->tail.run = web_turn;
    w->sweep.fire = check_timeouts;
    w->multi = curl_multi_init();
    w->share = curl_share_init();
    if (!w->multi || !w->share)
        return err_set(err, ERR_NO_SPACE, "libcurl cannot begin: out of memory");
    curl_share_setopt(w->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);
    web_sockets_attach(w);
    w->idle_max = w->options.connections_max;
    curl_multi_setopt(w->multi, CURLMOPT_MAXCONNECTS, (long)w->idle_max);
    curl_multi_setopt(w->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    *ret = take(&w);
    return 0;
}

void web_free(struct web *w)
{
    if (!w)
        return;
    assert(loop_is_mine(w->loop));
    struct web_job *j;
    while (!list_is_empty(&w->live)) { /* an on_done may submit again */
        list_foreach (&w->live, j, node)
            web_job_schedule(j, STEP_CANCEL);
        take_steps(w);
    }
    /* Closes the kept connections, which calls close_socket. */
    curl_multi_cleanup(w->multi);
    curl_share_cleanup(w->share);
    web_sockets_done(w);
    while ((j = list_pop(&w->unused, struct web_job, node)) != NULL)
        job_free(j);
    web_hosts_free(w);
    loop_timer_cancel(w->loop, &w->sweep);
    loop_defer_cancel(w->loop, &w->tail);
    free(w->ca_file);
    free(w->ca);
    free(w->certificate);
    if (w->key)
        explicit_bzero(w->key, w->options.key.len);
    free(w->key);
    free(w);
}
