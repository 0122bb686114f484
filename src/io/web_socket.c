/* SPDX-License-Identifier: Apache-2.0 */
#include "util/clock.h"
#include "web_error.h"
#include "web_private.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static struct web_socket *socket_of(struct web *w, int fd)
{
    if ((size_t)fd >= w->socket_room) {
        size_t room = w->socket_room ? w->socket_room : 64;
        while (room <= (size_t)fd)
            room *= 2;
        w->sockets = xrealloc(w->sockets, room, sizeof *w->sockets);
        memset(w->sockets + w->socket_room, 0, (room - w->socket_room) * sizeof *w->sockets);
        w->socket_room = room;
    }
    if (!w->sockets[fd]) {
        w->sockets[fd] = xcalloc(1, sizeof *w->sockets[fd]);
        w->sockets[fd]->web = w;
        w->sockets[fd]->watch.fd = fd;
    }
    return w->sockets[fd];
}

/* False: libcurl has closed it. */
static bool socket_forget(struct web_socket *s)
{
    bool is_open = !s->watched || loop_unwatch(s->web->loop, &s->watch);
    s->watched = false;
    s->wanted = 0;
    return is_open;
}

/* libcurl before 8.4 goes on to the next address of a name at its next timer: often the connect timeout, when it is too
 * late (https://github.com/curl/curl/issues/11920). */
static void try_next_address(struct web_job *j)
{
    if (LIBCURL_VERSION_NUM < 0x080400 && j && j->state == WEB_JOB_RUNNING && !j->head_reported)
        web_job_schedule(j, STEP_RUN);
}

static void socket_closed(struct web_socket *s)
{
    try_next_address(s->opener);
    web_host_socket_closed(s);
    if (s->ours && !s->is_shut)
        s->web->open--;
    s->ours = false;
    s->opener = NULL;
}

static void socket_ready(struct watch *watch, uint32_t events)
{
    struct web_socket *s = container_of(watch, struct web_socket, watch);
    struct web *w = s->web;
    int running, bits = 0;
    if (!s->wanted) {
        /* Idle in the cache, or paused: the server closed it or sent unexpected bytes. */
        socket_forget(s);
        return;
    }
    if (events & EPOLLIN)
        bits |= CURL_CSELECT_IN;
    if (events & EPOLLOUT)
        bits |= CURL_CSELECT_OUT;
    if (events & (EPOLLERR | EPOLLHUP))
        bits |= CURL_CSELECT_ERR;
    curl_multi_socket_action(w->multi, watch->fd, bits, &running);
    loop_defer(w->loop, &w->tail);
}

/* libcurl waits for nothing on an idle connection, nor on one whose job is paused. */
static void note_pause(struct web_socket *s, CURL *easy)
{
    struct web_job *j = NULL;
    s->is_paused = !s->wanted && curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&j) == CURLE_OK && j &&
                   (j->paused || j->rate_wait_until_ns);
    if (s->is_paused)
        j->paused_socket = s;
}

/* A kept connection stays in the epoll set. Others may be closed already: libcurl closes the resolver's socket without
 * a call to close_socket. Before 8.3 it also does so if it gives up a socket that is not connected
 * (https://github.com/curl/curl/pull/11439). The next socket may get the same number. */
static void socket_unwanted(struct web_socket *s)
{
    bool is_kept = s->ours && !(s->watch.events & EPOLLOUT);
    if (!is_kept && !socket_forget(s))
        socket_closed(s);
}

/* libcurl calls it at the beginning and the end of each request. A kept connection stays in the epoll set between two
 * requests: two system calls a request would cost more than the rare event in between. */
static int socket_changed(CURL *easy, curl_socket_t fd, int what, void *ctx, void *)
{
    struct web_socket *s = socket_of(ctx, fd);
    struct err err;
    s->wanted = what == CURL_POLL_IN      ? EPOLLIN
                : what == CURL_POLL_OUT   ? EPOLLOUT
                : what == CURL_POLL_INOUT ? EPOLLIN | EPOLLOUT
                                          : 0;
    note_pause(s, easy);
    if (!s->wanted) {
        socket_unwanted(s);
        return 0;
    }
    bool lacks = s->wanted & ~s->watch.events;
    bool spins = s->watch.events & EPOLLOUT & ~s->wanted;
    if (!s->watched) {
        s->watch.ready = socket_ready;
        s->watch.events = s->wanted;
        s->watched = loop_watch(s->web->loop, &s->watch, &err) == 0;
        return s->watched ? 0 : -1;
    }
    return (lacks || spins) && loop_watch_change(s->web->loop, &s->watch, s->wanted, &err) < 0 ? -1 : 0;
}

bool web_socket_may_connect(struct web_job *j, const struct sockaddr *to)
{
    const struct guard *g = j->web->options.guard;
    if (!g || j->request.unguarded || guard_allows(g, to))
        return true;
    const void *bytes = to->sa_family == AF_INET ? (const void *)&((const struct sockaddr_in *)to)->sin_addr
                                                 : &((const struct sockaddr_in6 *)to)->sin6_addr;
    if (!inet_ntop(to->sa_family, bytes, j->blocked_address, sizeof j->blocked_address))
        snprintf(j->blocked_address, sizeof j->blocked_address, "?");
    return false;
}

int web_socket_blocked(const struct web_job *j, const char *url, struct err *err)
{
    struct str origin = web_origin(url);
    return err_fail(err, ERR_DENIED, CIS_ADDRESS_BLOCKED, "'%.*s' leads to %s, an address that sources may not use",
                    STR_FMT(origin), j->blocked_address);
}

static curl_socket_t open_socket(void *ctx, curlsocktype, struct curl_sockaddr *address)
{
    struct web_job *j = ctx;
    if (!web_socket_may_connect(j, &address->addr))
        return CURL_SOCKET_BAD;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd < 0) {
        j->socket_errno = errno;
        return CURL_SOCKET_BAD;
    }
    struct web_socket *s = socket_of(j->web, fd);
    socket_forget(s); /* whatever had this number before is closed */
    socket_closed(s);
    s->ours = true;
    s->is_paused = s->is_shut = s->is_probed = false;
    s->opener = j;
    j->is_sent = false;
    s->opened_ns = loop_now_ns(j->web->loop);
    j->web->open++;
    j->web->connects.connections++;
    web_host_socket_opened(s, j, &address->addr);
    return fd;
}

static bool has_tls(const struct web_job *j)
{
    const char *url = NULL;
    return curl_easy_getinfo(j->easy, CURLINFO_EFFECTIVE_URL, &url) == CURLE_OK && url &&
           strncmp(url, "https:", 6) == 0;
}

/* Whether the server has read the request that was sent over this connection. A server that refuses a connection does
 * not read: its kernel resets the connection when it is closed with unread bytes, or when they come later. With TLS,
 * libcurl has answered the end of the connection with bytes of its own before this, so the state shows nothing. But a
 * request is sent only after the handshake, and a server that refuses connections does not complete one. */
static bool was_read(const struct web_job *j, int fd)
{
    struct tcp_info info;
    return has_tls(j) || (web_socket_state(fd, &info) && info.tcpi_state == TCP_CLOSE_WAIT && info.tcpi_unacked == 0);
}

static int close_socket(void *ctx, curl_socket_t fd)
{
    struct web_socket *s = socket_of(ctx, fd);
    struct web_job *j = s->opener;
    if (j && j->state == WEB_JOB_RUNNING && j->is_sent &&
        j->progress.started_ns <= s->opened_ns) /* it may be another request by now */
        j->was_read |= was_read(j, fd);
    socket_forget(s);
    web_host_socket_closing(s);
    socket_closed(s);
    return close(fd);
}

/* A server without TLS may wait in silence for the end of the line that a handshake begins. An empty line lets it
 * answer before the connect timeout, and OpenSSL reports that the answer is not TLS. After this time, a
 * server with TLS counts as failed anyway. */
void web_socket_check_handshake(struct web_socket *s)
{
    const struct web *w = s->web;
    const struct web_job *j = s->opener;
    curl_off_t agreed = 0;
    if (!j || s->is_probed || j->state != WEB_JOB_RUNNING || !w->hosts_wanted ||
        j->progress.started_ns > s->opened_ns ||
        loop_now_ns(w->loop) - s->opened_ns < w->options.connect_timeout_ns / 10 * 6)
        return;
    curl_easy_getinfo(j->easy, CURLINFO_APPCONNECT_TIME_T, &agreed);
    if (has_tls(j) && agreed == 0)
        s->is_probed = send(s->watch.fd, "\r\n\r\n", 4, MSG_DONTWAIT | MSG_NOSIGNAL) == 4;
}

/* At the end of a transfer, libcurl closes the oldest of too many kept connections, and dead ones when it finds them.
 * A shut connection is dead, so its descriptor is free sooner. */
void web_sockets_shut_idle(struct web *w)
{
    for (size_t i = 0; i < w->socket_room && w->open > w->idle_max; i++) {
        struct web_socket *s = w->sockets[i];
        if (!s || !s->ours || s->wanted || s->is_paused || s->is_shut)
            continue;
        shutdown(s->watch.fd, SHUT_RDWR);
        s->is_shut = true;
        w->open--;
    }
}

static void timer_fired(struct timer *t)
{
    struct web *w = container_of(t, struct web, timer);
    w->timeout_is_due = true;
    loop_defer(w->loop, &w->tail);
}

static int timer_changed(CURLM *, long timeout_ms, void *ctx)
{
    struct web *w = ctx;
    w->timeout_is_due = timeout_ms == 0;
    if (w->timeout_is_due)
        loop_defer(w->loop, &w->tail);
    if (timeout_ms > 0)
        loop_timer_set(w->loop, &w->timer, (uint64_t)timeout_ms * NS_PER_MS);
    else
        loop_timer_cancel(w->loop, &w->timer);
    return 0;
}

void web_sockets_prepare(struct web *w, CURL *easy, struct web_job *j)
{
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, j);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, w); /* a connection outlives the job that made it */
}

void web_sockets_attach(struct web *w)
{
    w->timer.fire = timer_fired;
    curl_multi_setopt(w->multi, CURLMOPT_SOCKETFUNCTION, socket_changed);
    curl_multi_setopt(w->multi, CURLMOPT_SOCKETDATA, w);
    curl_multi_setopt(w->multi, CURLMOPT_TIMERFUNCTION, timer_changed);
    curl_multi_setopt(w->multi, CURLMOPT_TIMERDATA, w);
}

void web_sockets_done(struct web *w)
{
    loop_timer_cancel(w->loop, &w->timer);
    for (size_t i = 0; i < w->socket_room; i++) {
        if (w->sockets[i])
            socket_forget(w->sockets[i]);
        free(w->sockets[i]);
    }
    free(w->sockets);
}
