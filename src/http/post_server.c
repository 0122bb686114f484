/* SPDX-License-Identifier: Apache-2.0 */
#include "http/post_server.h"
#include "connection_limit.h"
#include "private.h"
#include "util/clock.h"
#include <fcntl.h>
#include <microhttpd.h>
#include <sys/socket.h>

enum {
    CONNECTIONS_MAX = 256,
    CONNECTIONS_OF_ONE_MAX = 64,
    SILENCE_SECONDS = 10,
    HEAD_BYTES = 24 << 10, /* for the request's head, the reply's head and a read buffer */
    STACK_BYTES = 512 << 10,
    ANSWER_BYTES_MAX = 64 << 10,
    BUSY_SECONDS = 2,
};

#define DRAIN_NS (30 * NS_PER_SECOND)
#define PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

struct post_server {
    struct post_server_options options; /* frozen; `listen` is not kept */
    int fd;                             /* owned: the listening socket; each daemon has a duplicate */
    uint16_t port;
    struct connection_limit limit;
    struct MHD_Daemon *daemon; /* owned; NULL before the first certificate */
};

/* home: the connection's thread. */
struct post {
    struct sbuf body;
};

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, struct sbuf *own_b, unsigned retry_after)
{
    char seconds[16];
    struct MHD_Response *r = response_of(own_b, "application/json", "{}", &status);
    if (!r)
        return MHD_NO;
    /* Each connection has a thread: none waits for a later call. */
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
    if (retry_after) {
        snprintf(seconds, sizeof seconds, "%u", retry_after);
        MHD_add_response_header(r, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    }
    return response_queue(c, status, r);
}

static enum MHD_Result say(struct MHD_Connection *c, unsigned status, const char *words)
{
    bool is_later = status == MHD_HTTP_SERVICE_UNAVAILABLE;
    struct sbuf b;
    sbuf_init(&b, 1024);
    sbuf_addf(&b, "{\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}", is_later ? "AGAIN" : "INVALID", words);
    return answer(c, status, &b, is_later ? BUSY_SECONDS : 0);
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

static struct str header_of(struct MHD_Connection *c, const char *name)
{
    const char *value = MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
    return str_of(value);
}

/* Called after the head, before the body. NULL: the reply was queued. */
static struct post *begin(const struct post_server *s, struct MHD_Connection *c, const char *path, const char *method,
                          enum MHD_Result *ret)
{
    uint64_t announced = 0;
    struct str length = header_of(c, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (strcmp(method, "GET") == 0 && strcmp(path, "/healthz") == 0)
        *ret = say(c, MHD_HTTP_OK, "ok");
    else if (strcmp(path, s->options.path) != 0)
        *ret = say(c, MHD_HTTP_NOT_FOUND, "no call has this path");
    else if (strcmp(method, "POST") != 0)
        *ret = say(c, MHD_HTTP_METHOD_NOT_ALLOWED, "POST only");
    else if (length.len && (str_to_u64(length, &announced, ERR_IGNORED) < 0 || announced > POST_BODY_MAX))
        *ret = say(c, MHD_HTTP_CONTENT_TOO_LARGE, "the body is too long");
    else {
        struct post *p = xcalloc(1, sizeof *p);
        sbuf_init(&p->body, POST_BODY_MAX);
        return p;
    }
    return NULL;
}

static enum MHD_Result finish(struct post_server *s, struct MHD_Connection *c, const struct post *p)
{
    uint8_t peer[ADDRESS_BYTES];
    size_t peer_len = connection_address(c, peer);
    unsigned retry_after = 0;
    struct sbuf b;
    if (p->body.overflow)
        return say(c, MHD_HTTP_CONTENT_TOO_LARGE, "the body is too long");
    if (!connection_limit_may_call(&s->limit, c))
        return say(c, MHD_HTTP_SERVICE_UNAVAILABLE, "too many calls of this address are in progress");
    sbuf_init(&b, ANSWER_BYTES_MAX);
    const struct post_request r = {.authorization = header_of(c, MHD_HTTP_HEADER_AUTHORIZATION),
                                   .body = sbuf_str(&p->body),
                                   .peer = {(const char *)peer, peer_len}};
    unsigned status = s->options.call(s->options.ctx, &r, &b, &retry_after);
    return answer(c, status, &b, retry_after);
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *c, const char *path, const char *method,
                                  const char *, const char *upload, size_t *upload_len, void **request)
{
    enum MHD_Result r = MHD_YES;
    struct post *p = *request;
    if (!p) {
        *request = begin(ctx, c, path, method, &r);
        return r;
    }
    if (*upload_len == 0)
        return finish(ctx, c, p);
    sbuf_add(&p->body, (struct str){upload, *upload_len});
    *upload_len = 0;
    return MHD_YES;
}

static void on_completed(void *, struct MHD_Connection *, void **request, enum MHD_RequestTerminationCode)
{
    struct post *p = *request;
    *request = NULL;
    if (p)
        sbuf_done(&p->body);
    free(p);
}

/* ---- the server -------------------------------------------------------------------------------------------------- */

int post_server_open(const struct post_server_options *o, struct post_server **ret, struct err *err)
{
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return err_set(err, ERR_UNSUPPORTED, "this libmicrohttpd was built without TLS");
    int fd = socket_open(o->listen, err);
    if (fd < 0)
        return fd;
    struct post_server *c = xcalloc(1, sizeof *c);
    c->options = *o;
    c->options.listen = NULL;
    c->fd = fd;
    c->port = socket_port(fd);
    connection_limit_init(&c->limit, CONNECTIONS_MAX);
    *ret = c;
    return 0;
}

static void drain(struct MHD_Daemon *d)
{
    for (uint64_t end = clock_now_ns() + DRAIN_NS; clock_now_ns() < end; clock_sleep(20 * NS_PER_MS)) {
        const union MHD_DaemonInfo *i = MHD_get_daemon_info(d, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
        if (!i || i->num_connections == 0)
            return;
    }
}

/* A daemon has one certificate for its life, so a new certificate is a new daemon on the same socket. Connections in
 * between wait in the socket's queue; none is refused. */
int post_server_set_certificate(struct post_server *c, const char *certificate, const char *key, struct err *err)
{
    unsigned silence = c->options.silence_seconds ? c->options.silence_seconds : (unsigned)SILENCE_SECONDS;
    auto_fd fd = fcntl(c->fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return err_sys(err, errno, "cannot duplicate the listening socket");
    struct MHD_Daemon *next = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL | MHD_USE_ITC | MHD_USE_TLS, 0,
        NULL, NULL, on_request, c, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_HTTPS_MEM_CERT, certificate,
        MHD_OPTION_HTTPS_MEM_KEY, key, MHD_OPTION_HTTPS_PRIORITIES, PRIORITIES, MHD_OPTION_CONNECTION_LIMIT,
        CONNECTIONS_MAX + CONNECTION_LIMIT_SPARE, MHD_OPTION_NOTIFY_CONNECTION, connection_limit_notify, &c->limit,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, CONNECTIONS_OF_ONE_MAX, MHD_OPTION_CONNECTION_TIMEOUT, silence,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_BYTES, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_END);
    if (!next)
        return err_set(err, ERR_INVALID, "cannot serve HTTPS with this certificate and key");
    (void)take_fd(&fd); /* the daemon closes it */
    struct MHD_Daemon *old = c->daemon;
    c->daemon = next;
    if (old) {
        close(MHD_quiesce_daemon(old));
        drain(old);
        MHD_stop_daemon(old);
    }
    return 0;
}

void post_server_free(struct post_server *c)
{
    if (!c)
        return;
    if (c->daemon)
        MHD_stop_daemon(c->daemon);
    close(c->fd);
    connection_limit_done(&c->limit);
    free(c);
}

uint16_t post_server_port(const struct post_server *c)
{
    return c->port;
}
