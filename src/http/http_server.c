/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http_server.h"
#include "connection_limit.h"
#include "private.h"
#include "util/metric.h"
#include <microhttpd.h>

/* Few connections for each address: pods that keep theirs open must not exclude the kubelet's liveness probe. */
enum { CONNECTIONS_MAX = 128, CONNECTIONS_OF_ONE_MAX = 8 };
enum { SILENCE_SECONDS = 10, REQUEST_BYTES = 16384, PAGE_BYTES_MAX = 64 << 20 };

struct http_server {
    struct http_server_options options; /* frozen; `listen` is not kept */
    struct connection_limit limit;
    struct MHD_Daemon *daemon; /* owned; it also owns the listening socket */
    uint16_t port;
};

struct http_page {
    const char *path;
    const char *type;
    unsigned (*write)(const struct http_server *s, struct sbuf *b); /* returns the HTTP status */
};

static unsigned write_metrics(const struct http_server *s, struct sbuf *b)
{
    metric_write(b);
    if (s->options.metrics)
        s->options.metrics(s->options.ctx, b);
    return MHD_HTTP_OK;
}

static unsigned write_health(const struct http_server *s, struct sbuf *b)
{
    if (s->options.is_healthy && !s->options.is_healthy(s->options.ctx, b)) {
        sbuf_addc(b, '\n');
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    }
    sbuf_clear(b);
    sbuf_adds(b, "ok\n");
    return MHD_HTTP_OK;
}

static unsigned write_status(const struct http_server *s, struct sbuf *b)
{
    if (!s->options.status) {
        sbuf_adds(b, "{\"error\":\"status is not served here\"}\n");
        return MHD_HTTP_NOT_FOUND;
    }
    s->options.status(s->options.ctx, b);
    sbuf_addc(b, '\n');
    return MHD_HTTP_OK;
}

static const struct http_page pages[] = {
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", write_metrics},
    {"/healthz", "text/plain; charset=utf-8", write_health},
    {"/status", "application/json", write_status},
};

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, const char *type, struct sbuf *own_b)
{
    struct MHD_Response *r = response_of(own_b, type, "the page is too long\n", &status);
    if (!r)
        return MHD_NO;
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    return response_queue(c, status, r);
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *c, const char *path, const char *method,
                                  const char *, const char *, size_t *, void **)
{
    const struct http_server *s = ctx;
    struct sbuf b;
    sbuf_init(&b, PAGE_BYTES_MAX);
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        sbuf_adds(&b, "GET and HEAD only\n");
        return answer(c, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain", &b);
    }
    for (size_t i = 0; i < countof(pages); i++)
        if (strcmp(path, pages[i].path) == 0) {
            unsigned status = pages[i].write(s, &b);
            return answer(c, status, pages[i].type, &b);
        }
    sbuf_adds(&b, "use /metrics, /healthz or /status\n");
    return answer(c, MHD_HTTP_NOT_FOUND, "text/plain", &b);
}

int http_server_start(const struct http_server_options *o, struct http_server **ret, struct err *err)
{
    auto_fd fd = -1;
    int r = socket_open(o->listen, err);
    if (r < 0)
        return r;
    fd = r;
    auto_http_server s = xcalloc(1, sizeof *s);
    s->options = *o;
    s->options.listen = NULL;
    s->port = socket_port(fd);
    connection_limit_init(&s->limit, CONNECTIONS_MAX);
    s->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC, 0, NULL, NULL, on_request, s, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX + CONNECTION_LIMIT_SPARE, MHD_OPTION_NOTIFY_CONNECTION,
        connection_limit_notify, &s->limit, MHD_OPTION_PER_IP_CONNECTION_LIMIT, CONNECTIONS_OF_ONE_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, o->silence_seconds ? o->silence_seconds : (unsigned)SILENCE_SECONDS,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_BYTES, MHD_OPTION_END);
    if (!s->daemon)
        return err_sys(err, errno, "cannot serve HTTP at '%s'", o->listen);
    (void)take_fd(&fd); /* the daemon closes it */
    *ret = take(&s);
    return 0;
}

void http_server_free(struct http_server *s)
{
    if (!s)
        return;
    if (s->daemon)
        MHD_stop_daemon(s->daemon);
    connection_limit_done(&s->limit);
    free(s);
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}
