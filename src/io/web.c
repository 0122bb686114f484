/* SPDX-License-Identifier: Apache-2.0 */
#include "io/web.h"
#include "util/clock.h"
#include "web_error.h"
#include "web_private.h"
#include <assert.h>
#include <malloc.h>
#include <pthread.h>

enum { CONNECTIONS_DEFAULT = 64 };

/* How often jobs are looked at for a stall. */
#define SWEEP_NS (NS_PER_SECOND / 4)

static void set_sweep(struct web *w)
{
    loop_timer_set(w->loop, &w->sweep, min_u64(SWEEP_NS, w->options.stall_timeout_ns / 4 + 1));
}

void job_todo(struct web_job *j, unsigned what)
{
    struct web *w = j->web;
    if (!j->todo) {
        j->next_todo = NULL;
        *w->todo_last = j;
        w->todo_last = &j->next_todo;
        loop_at_tail(w->loop, &w->tail);
    }
    j->todo |= what;
}

/* ---- a job's life ------------------------------------------------------------------------------------------------ */

static struct web_job *job_new(struct web *w)
{
    struct web_job *j = w->unused;
    if (j) {
        w->unused = j->next;
    } else {
        j = xcalloc(1, sizeof *j);
        j->web = w;
        j->hold.fire = transfer_hold_over;
    }
    /* One a request: libcurl before 8.1 takes a head that begins with a blank for more of the last header that the
     * handle had, which is freed by then (https://github.com/curl/curl/issues/11101). A handle is made in a
     * microsecond. */
    j->easy = curl_easy_init();
    if (!j->easy)
        out_of_memory();
    transfer_prepare(j);
    return j;
}

static void job_free(struct web_job *j)
{
    free(j->header_text);
    free(j->header_lines);
    free(j);
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
    j->head_told = j->paused = j->has_resolve = j->has_order = false;
    j->aborted = j->socket_errno = 0;
    j->sends = 0;
    j->held_until = j->sent = j->received = j->first_byte_ns = j->trailer_bytes = 0;
    j->error[0] = j->closed[0] = '\0';
    j->started_ns = j->moved_ns = loop_now_ns(w->loop);
    j->start_code = transfer_set(j, r, &j->start_err);
    j->name = r->connect_to ? NULL : web_name_of(w, r->url);
    j->state = JOB_WAITING;
    j->prev = NULL;
    j->next = w->live;
    if (j->next)
        j->next->prev = j;
    else
        set_sweep(w);
    w->live = j;
    job_todo(j, TODO_START);
    return j;
}

static int job_outcome(struct web_job *j, unsigned todo, struct err *err)
{
    char *url = NULL;
    long sys = 0;
    curl_easy_getinfo(j->easy, CURLINFO_EFFECTIVE_URL, &url);
    struct str origin = web_origin(url);
    if (todo & TODO_CANCEL)
        return err_set(err, ERR_CANCELLED, "a request to '%.*s' was cancelled", STR_FMT(origin));
    if (j->start_code < 0)
        return err_copy(err, &j->start_err);
    if (j->aborted < 0)
        return err_set(err, (enum err_code) - j->aborted, "a request to '%.*s' was stopped by its %s", STR_FMT(origin),
                       j->head_told || !j->sent ? "reader" : "sender");
    if (transfer_is_flooded(j))
        return web_translate(&(struct web_failure){.code = CURLE_OUT_OF_MEMORY, .url = url, .connected = true}, err);
    if (todo & TODO_TIMEOUT)
        return web_translate(&(struct web_failure){.code = CURLE_OPERATION_TIMEDOUT, .detail = j->too_long, .url = url},
                             err);
    /* libcurl takes a head that was cut after its first line for a whole answer. */
    if (j->result == CURLE_OK && !j->head_told)
        return web_translate(&(struct web_failure){.code = CURLE_PARTIAL_FILE, .url = url}, err);
    if (j->result == CURLE_OK)
        return 0;
    if (j->closed[0]) {
        err_set(err, ERR_DENIED, "'%.*s' leads to %s, an address that is closed to sources", STR_FMT(origin),
                j->closed);
        return err_advise(err, 1617,
                          "use the store's own address; an administrator may open this one: "
                          "endpoints.allowAddresses of the chart");
    }
    long connects = 0;
    char *address = NULL;
    curl_easy_getinfo(j->easy, CURLINFO_OS_ERRNO, &sys);
    curl_easy_getinfo(j->easy, CURLINFO_NUM_CONNECTS, &connects);
    curl_easy_getinfo(j->easy, CURLINFO_PRIMARY_IP, &address);
    struct web_failure f = {.code = j->result,
                            .detail = j->error,
                            .url = url,
                            .sys = j->socket_errno ? j->socket_errno : (int)sys,
                            .connected = connects > 0 || (address && address[0])};
    return web_translate(&f, err);
}

/* Did the server have no connection for it? What was sent over one that had been kept, libcurl sends again over a new
 * one. */
static bool was_turned_away(const struct web_job *j, int code)
{
    long connects = 0;
    if ((code != -ERR_IO && code != -ERR_TIMEOUT) || j->first_byte_ns)
        return false;
    switch (j->result) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT: /* libcurl is told of no time but that for connecting */
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

static void job_end(struct web_job *j, unsigned todo)
{
    struct web *w = j->web;
    struct web_result r = {.sends = j->sends,
                           .body_bytes = j->received,
                           .first_byte_ns = j->first_byte_ns,
                           .total_ns = loop_now_ns(w->loop) - j->started_ns};
    r.code = job_outcome(j, todo, &r.err);
    r.status = j->start_code < 0 ? 0 : web_status(j);
    r.turned_away = (todo & TODO_SETTLE) && was_turned_away(j, r.code);
    if (r.turned_away)
        w->tried.turned_away++;
    if (j->is_waiting)
        web_name_left(j);
    if (j->state == JOB_RUNNING && j->name)
        web_name_over(j, j->first_byte_ns > 0,
                      !j->first_byte_ns && (todo & (TODO_SETTLE | TODO_TIMEOUT)) && !j->aborted);
    if (j->state == JOB_RUNNING)
        curl_multi_remove_handle(w->multi, j->easy);
    loop_timer_cancel(w->loop, &j->hold);
    if (j->held)
        j->held->is_held = false;
    j->held = NULL;
    j->state = JOB_ENDED;
    if (j->prev)
        j->prev->next = j->next;
    else
        w->live = j->next;
    if (j->next)
        j->next->prev = j->prev;
    j->request.on_done(j->request.ctx, &r);
    assert(!j->todo);
    curl_easy_cleanup(take(&j->easy));
    j->state = JOB_FREE;
    j->next = w->unused;
    w->unused = j;
}

static void job_start(struct web_job *j)
{
    assert(j->state == JOB_WAITING);
    if (web_name_waits(j))
        return;
    web_name_choose(j, false);
    j->state = JOB_RUNNING;
    CURLMcode r = curl_multi_add_handle(j->web->multi, j->easy);
    if (r != CURLM_OK) {
        j->start_code = err_set(&j->start_err, ERR_INTERNAL, "libcurl refused a request: %s", curl_multi_strerror(r));
        job_end(j, 0);
    }
}

/* Nothing was sent yet: the request begins again on a connection to another address. */
static void job_go_elsewhere(struct web_job *j)
{
    if (j->state != JOB_RUNNING || j->head_told)
        return;
    curl_multi_remove_handle(j->web->multi, j->easy);
    web_name_choose(j, true);
    curl_multi_add_handle(j->web->multi, j->easy);
}

static void job_step(struct web_job *j)
{
    unsigned todo = j->todo;
    j->todo = 0;
    if ((todo & (TODO_CANCEL | TODO_SETTLE | TODO_TIMEOUT)) || j->start_code < 0)
        job_end(j, todo);
    else if (todo & TODO_START)
        job_start(j);
    else if (todo & TODO_ELSEWHERE)
        job_go_elsewhere(j);
    else if (todo & TODO_RESUME)
        curl_easy_pause(j->easy, CURLPAUSE_CONT);
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
        j->result = m->data.result;
        job_todo(j, TODO_SETTLE);
    }
}

static void take_steps(struct web *w)
{
    struct web_job *first = w->todo_first;
    w->todo_first = NULL;
    w->todo_last = &w->todo_first;
    while (first) {
        struct web_job *j = first;
        first = j->next_todo;
        job_step(j);
    }
}

/* Ends what has ended, so that its connections are free for what starts; starts; lets libcurl send the requests. */
static void web_turn(struct tail *t)
{
    struct web *w = container_of(t, struct web, tail);
    int running;
    take_results(w);
    take_steps(w);
    if (w->todo_first)
        take_steps(w);
    if (w->kick) {
        w->kick = false;
        curl_multi_socket_action(w->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        take_results(w);
    }
}

static uint64_t stall_timeout(const struct web_job *j)
{
    return j->request.stall_timeout_ns ? j->request.stall_timeout_ns : j->web->options.stall_timeout_ns;
}

static void swept(struct timer *t)
{
    struct web *w = container_of(t, struct web, sweep);
    uint64_t now = loop_now_ns(w->loop);
    for (struct web_job *j = w->live; j; j = j->next) {
        const char *what = NULL;
        if (j->request.timeout_ns && now - j->started_ns >= j->request.timeout_ns)
            what = "the time for the whole request is over";
        else if (!j->paused && !j->held_until && now - j->moved_ns >= stall_timeout(j))
            what = j->request.stall_bytes ? "next to nothing came or went for too long"
                                          : "no byte came or went for too long";
        if (what) {
            j->too_long = what;
            job_todo(j, TODO_TIMEOUT);
        }
    }
    for (size_t i = 0; i < w->socket_room; i++)
        if (w->sockets[i])
            web_name_look(w->sockets[i]);
    if (w->live)
        set_sweep(w);
}

void web_cancel(struct web_job *j)
{
    assert(j->state == JOB_WAITING || j->state == JOB_RUNNING);
    job_todo(j, TODO_CANCEL);
}

void web_resume(struct web_job *j)
{
    if (!j->paused)
        return;
    j->paused = false;
    j->moved_ns = loop_now_ns(j->web->loop);
    j->crumbs = 0;
    job_todo(j, TODO_RESUME);
}

void web_keep(struct web *w, unsigned connections)
{
    if (connections != w->kept_max)
        curl_multi_setopt(w->multi, CURLMOPT_MAXCONNECTS, (long)(connections ? connections : 1)); /* 0: as it likes */
    w->kept_max = connections;
    web_sockets_shut_idle(w);
}

struct web_tried web_tried(const struct web *w)
{
    return w->tried;
}

int web_status(const struct web_job *j)
{
    long status = 0;
    curl_easy_getinfo(j->easy, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

struct str web_reply_header(struct web_job *j, const char *name)
{
    struct curl_header *h;
    if (curl_easy_header(j->easy, name, 0, CURLH_HEADER, -1, &h) != CURLHE_OK)
        return STR_NULL;
    if (h->amount > 1 && curl_easy_header(j->easy, name, h->amount - 1, CURLH_HEADER, -1, &h) != CURLHE_OK)
        return STR_NULL;
    return str_trim(str_of(h->value)); /* of one without a value, libcurl leaves the line's end */
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* libcurl takes its receive buffer anew for every request. By default glibc gives so large a block back to the kernel,
 * and the faults that bring it in again cost as much as the copy of 100 KiB: 30 us a request, measured. */
void web_keep_buffers(void)
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
    w->options.stall_timeout_ns = o->stall_timeout_ns ? o->stall_timeout_ns : 30 * NS_PER_SECOND;
    w->ca_file = o->ca_file ? str_dup(str_of(o->ca_file)) : NULL;
    w->ca = str_dup(o->ca);
    w->certificate = str_dup(o->certificate);
    w->key = str_dup(o->key);
    w->todo_last = &w->todo_first;
    w->names_wanted = web_names_wanted();
    w->tail.run = web_turn;
    w->sweep.fire = swept;
    w->multi = curl_multi_init();
    w->share = curl_share_init();
    if (!w->multi || !w->share)
        return err_set(err, ERR_NO_SPACE, "libcurl cannot begin: out of memory");
    curl_share_setopt(w->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);
    web_sockets_attach(w);
    w->kept_max = w->options.connections_max;
    curl_multi_setopt(w->multi, CURLMOPT_MAXCONNECTS, (long)w->kept_max);
    curl_multi_setopt(w->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    *ret = take(&w);
    return 0;
}

void web_free(struct web *w)
{
    if (!w)
        return;
    assert(loop_is_mine(w->loop));
    while (w->live) { /* an on_done may submit again */
        for (struct web_job *j = w->live; j; j = j->next)
            job_todo(j, TODO_CANCEL);
        take_steps(w);
    }
    for (struct web_job *j; (j = w->unused) != NULL;) {
        w->unused = j->next;
        job_free(j);
    }
    /* Closes the kept connections, which calls socket_close. */
    curl_multi_cleanup(w->multi);
    curl_share_cleanup(w->share);
    web_sockets_done(w);
    web_names_free(w);
    loop_timer_cancel(w->loop, &w->sweep);
    loop_tail_cancel(w->loop, &w->tail);
    free(w->ca_file);
    free(w->ca);
    free(w->certificate);
    if (w->key)
        explicit_bzero(w->key, w->options.key.len);
    free(w->key);
    free(w);
}
