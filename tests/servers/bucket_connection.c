/* SPDX-License-Identifier: Apache-2.0 */
#include "bucket_connection.h"
#include "util/clock.h"
#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>

enum { READ_BYTES = 256 << 10, EVENTS_MAX = 256 };

enum state { READ_HEAD, READ_BODY, WRITE_WAITING, WRITE_HEAD, WRITE_BODY, RESETTING, STALLED };

struct connection {
    struct server_thread *thread;
    int fd;
    SSL *tls; /* NULL: plain */
    enum state state;
    bool readable; /* edge-triggered: unread bytes may be there */

    char in[HEAD_MAX + 1];
    size_t in_len;
    struct request request;
    size_t head_len; /* of the request in `in` */

    struct piece body; /* being received */
    uint64_t body_got;
    size_t content_room;
    struct hash crc32c, crc64, md5;

    struct reply reply;
    char head[4096];
    size_t out_len, out_at;
    unsigned segment;
    uint64_t segment_at;

    bool is_waiting; /* in the thread's list */
    struct connection *next, *prev;
    uint64_t due_ns;
};

static bool step(struct connection *c);

/* ---- bytes in and out: -1 with errno, EAGAIN included; 0 at the end ---------------------------------------------- */

static ssize_t tls_result(struct connection *c, int n)
{
    if (n > 0)
        return n;
    int why = SSL_get_error(c->tls, n);
    errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : EPIPE;
    return why == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

static ssize_t take_bytes(struct connection *c, char *buf, size_t room)
{
    return c->tls ? tls_result(c, SSL_read(c->tls, buf, (int)room)) : recv(c->fd, buf, room, 0);
}

static ssize_t give_bytes(struct connection *c, const char *bytes, size_t len, bool more)
{
    if (c->tls)
        return tls_result(c, SSL_write(c->tls, bytes, (int)min_u64(len, 1 << 20)));
    return send(c->fd, bytes, len, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
}

static ssize_t give_file(struct connection *c, int fd, uint64_t at, uint64_t len)
{
    off_t offset = (off_t)at;
    if (!c->tls)
        return sendfile(c->fd, fd, &offset, min_u64(len, 4 << 20));
    char buf[64 << 10];
    ssize_t n = pread(fd, buf, min_u64(len, sizeof buf), offset);
    return n > 0 ? give_bytes(c, buf, (size_t)n, false) : -1;
}

static ssize_t give_segment(struct connection *c, const struct segment *s, uint64_t at, uint64_t len)
{
    uint64_t from = (s->at + at) % PATTERN_BYTES;
    switch (s->from) {
    case SEGMENT_TEXT:
        return give_bytes(c, s->text + at, len, c->segment + 1 < c->reply.segment_count);
    case SEGMENT_FILE:
        return give_file(c, s->fd, s->at + at, len);
    case SEGMENT_PATTERN:
        len = min_u64(len, PATTERN_BYTES - from);
        return c->tls ? give_bytes(c, objects_pattern() + from, len, false)
                      : give_file(c, objects_pattern_fd(), from, len);
    }
    return -1;
}

/* ---- a connection's life ----------------------------------------------------------------------------------------- */

static _Atomic uint64_t open_count;

static void reset_at_close(int fd)
{
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
}

void connection_open(struct server_thread *t, int fd)
{
    uint64_t most = t->options->connections_max;
    if (atomic_fetch_add(&open_count, 1) >= most && most > 0) {
        atomic_fetch_sub(&open_count, 1);
        count_turned_away();
        reset_at_close(fd);
        close(fd);
        return;
    }
    struct connection *c = xcalloc(1, sizeof *c);
    c->thread = t;
    c->fd = fd;
    c->readable = true;
    sbuf_init(&c->reply.headers, HEAD_MAX);
    sbuf_init(&c->reply.text, 64 << 20);
    hash_init(&c->crc32c);
    hash_init(&c->crc64);
    hash_init(&c->md5);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (t->options->tls) {
        c->tls = SSL_new(t->options->tls);
        SSL_set_fd(c->tls, fd);
        SSL_set_accept_state(c->tls);
    }
    count_connection();
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &e);
}

static void wait_until(struct connection *c, uint64_t due_ns)
{
    struct server_thread *t = c->thread;
    c->due_ns = due_ns;
    if (c->is_waiting)
        return;
    c->is_waiting = true;
    c->prev = NULL;
    c->next = t->waiting;
    if (c->next)
        c->next->prev = c;
    t->waiting = c;
}

static void wait_over(struct connection *c)
{
    if (!c->is_waiting)
        return;
    c->is_waiting = false;
    if (c->prev)
        c->prev->next = c->next;
    else
        c->thread->waiting = c->next;
    if (c->next)
        c->next->prev = c->prev;
}

static void connection_close(struct connection *c)
{
    wait_over(c);
    atomic_fetch_sub(&open_count, 1);
    SSL_free(c->tls);
    close(c->fd);
    free(c->body.content);
    content_drop(c->reply.content);
    hash_done(&c->crc32c);
    hash_done(&c->crc64);
    hash_done(&c->md5);
    sbuf_done(&c->reply.headers);
    sbuf_done(&c->reply.text);
    free(c);
}

static void connection_reset(struct connection *c)
{
    reset_at_close(c->fd);
    connection_close(c);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static struct str cut_field(struct str *line, char sep)
{
    struct str field = STR_NULL;
    return str_split(line, sep, &field) ? field : STR_NULL;
}

/* "/BUCKET/KEY", "/storage/v1/b/BUCKET/o/KEY", "/upload/storage/v1/b/BUCKET/o", "/download/..." */
static void parse_path(struct request *r)
{
    static const char *const gcs[] = {"/storage/v1/b/", "/upload/storage/v1/b/", "/download/storage/v1/b/"};
    struct str rest = str_from(r->path, 1);
    r->is_gcs = false;
    for (size_t i = 0; i < countof(gcs) && !r->is_gcs; i++)
        if (str_starts(r->path, str_of(gcs[i]))) {
            r->is_gcs = true;
            rest = str_from(r->path, strlen(gcs[i]));
        }
    url_decode(cut_field(&rest, '/'), r->bucket, sizeof r->bucket);
    if (r->is_gcs && str_starts(rest, STR("o")))
        rest = str_from(rest, rest.len > 1 ? 2 : 1);
    else if (r->is_gcs)
        rest = STR_NULL;
    url_decode(rest, r->key, sizeof r->key);
}

static bool parse_request(struct connection *c)
{
    struct request *r = &c->request;
    struct err ignored;
    r->head = (struct str){c->in, c->head_len};
    struct str rest = r->head, line = cut_field(&rest, '\n');
    r->method = cut_field(&line, ' ');
    struct str target = cut_field(&line, ' ');
    r->path = cut_field(&target, '?');
    r->query = target;
    r->body_len = 0;
    struct str len = request_header(r, "Content-Length");
    if (len.ptr && str_to_u64(len, &r->body_len, &ignored) < 0)
        return false;
    if (!str_starts(r->path, STR("/")))
        return false;
    parse_path(r);
    return true;
}

static void body_begin(struct connection *c)
{
    free(c->body.content);
    c->body = (struct piece){0};
    c->body_got = 0;
    c->content_room = 0;
    if (c->request.body_len == 0 && !str_eq(c->request.method, STR("PUT")) && !str_eq(c->request.method, STR("POST")))
        return;
    hash_begin(&c->crc32c, HASH_CRC32C);
    hash_begin(&c->crc64, HASH_CRC64NVME);
    if (told.md5 || request_header(&c->request, "Content-MD5").ptr)
        hash_begin(&c->md5, HASH_MD5);
    bool small = c->request.body_len <= 1 << 20;
    if (keep_content || small) {
        c->content_room = c->request.body_len + 1;
        c->body.content = xcalloc(c->content_room, 1);
    }
    if (str_eq_nocase(request_header(&c->request, "Expect"), STR("100-continue")))
        give_bytes(c, "HTTP/1.1 100 Continue\r\n\r\n", 25, false);
}

static void body_take(struct connection *c, const char *bytes, size_t len)
{
    hash_update(&c->crc32c, bytes, len);
    hash_update(&c->crc64, bytes, len);
    if (c->md5.kind == HASH_MD5)
        hash_update(&c->md5, bytes, len);
    if (c->body.content)
        memcpy(c->body.content + c->body_got, bytes, len);
    c->body_got += len;
}

static void body_end(struct connection *c)
{
    if (c->crc32c.kind == HASH_NONE)
        return;
    c->body.size = c->body_got;
    hash_end(&c->crc32c, &c->body.crc32c);
    hash_end(&c->crc64, &c->body.crc64);
    if (c->md5.kind == HASH_MD5)
        hash_end(&c->md5, &c->body.md5);
    c->crc32c.kind = c->crc64.kind = c->md5.kind = HASH_NONE;
}

/* ---- answering --------------------------------------------------------------------------------------------------- */

static void control_answer(struct connection *c)
{
    struct reply *p = &c->reply;
    const struct request *r = &c->request;
    struct err err = {0};
    bool deletes = str_eq(r->method, STR("DELETE"));
    struct str rules = {c->body.content, c->body.size}, rule;
    if (str_eq(r->path, STR("/_stats"))) {
        stats_text(&p->text);
        if (deletes)
            stats_clear();
    } else if (str_eq(r->path, STR("/_order")))
        order_text(&p->text);
    else if (str_eq(r->path, STR("/_objects")))
        objects_text_of_uploads(&p->text);
    else if (str_eq(r->path, STR("/_fault"))) {
        if (str_eq(r->method, STR("GET")))
            faults_text(&p->text);
        if (deletes) {
            faults_clear();
            objects_heal();
        }
        while (!err.code && str_split(&rules, '\n', &rule))
            if (str_trim(rule).len > 0 && fault_add(str_trim(rule), &err) < 0)
                sbuf_addf(&p->text, "%s\n", err.text);
    } else
        err.code = ERR_NOT_FOUND;
    if (!p->text.len)
        sbuf_addc(&p->text, '\n');
    reply_text(p, err.code ? 400 : 200, "application/json", sbuf_str(&p->text));
}

static void make_answer(struct connection *c)
{
    struct reply *p = &c->reply;
    const struct request *r = &c->request;
    reply_clear(p);
    if (r->bucket[0] == '_') {
        control_answer(c);
        return;
    }
    enum operation op = operation_of(r);
    const struct fault *f = fault_for(op, r);
    p->delay_ns = c->thread->options->latency_ns;
    p->no_body = str_eq(r->method, STR("HEAD"));
    if (!f || !fault_before(f, r, p))
        r->is_gcs ? gcs_answer(r, &c->body, p) : s3_answer(r, &c->body, p);
    if (f)
        fault_after(f, r, p);
    count_request(op, p, r->body_len);
    if (op == OP_GET)
        order_note(r);
}

static const char *status_text(int status)
{
    return status == 200 ? "OK" : status == 206 ? "Partial Content" : status == 404 ? "Not Found" : "Status";
}

/* Made once a second and thread. */
static const char *date_text(void)
{
    static _Thread_local char text[40];
    static _Thread_local time_t made;
    time_t now = time(NULL);
    struct tm tm;
    if (now != made) {
        gmtime_r(&now, &tm);
        strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
        made = now;
    }
    return text;
}

static void head_begin(struct connection *c)
{
    struct reply *p = &c->reply;
    int n = 0;
    char length[48] = "Connection: close";
    if (p->declared_len != LENGTH_UNTOLD)
        snprintf(length, sizeof length, "Content-Length: %llu", (unsigned long long)p->declared_len);
    if (p->no_body)
        p->segment_count = 0;
    if (str_eq_nocase(request_header(&c->request, "Connection"), STR("close")) && p->end == END_KEEP)
        p->end = END_CLOSE;
    if (!p->raw && p->status == 204)
        n = snprintf(c->head, sizeof c->head, "HTTP/1.1 204 No Content\r\n\r\n");
    else if (!p->raw)
        n = snprintf(c->head, sizeof c->head,
                     "HTTP/1.1 %d %s\r\nServer: bucket\r\nDate: %s\r\n%.*s"
                     "%s\r\n\r\n",
                     p->status, status_text(p->status), date_text(), STR_FMT(sbuf_str(&p->headers)), length);
    assert(n < (int)sizeof c->head);
    c->out_len = (size_t)n;
    c->out_at = 0;
    c->segment = 0;
    c->segment_at = 0;
}

/* The request is used up; what came behind it in the buffer is the beginning of the next. */
static void request_end(struct connection *c)
{
    memmove(c->in, c->in + c->head_len, c->in_len - c->head_len);
    c->in_len -= c->head_len;
    c->head_len = 0;
    content_drop(take(&c->reply.content));
    c->state = READ_HEAD;
}

/* ---- steps: true if another may follow at once, false if it waits or is gone ------------------------------------- */

static bool failed(struct connection *c)
{
    if (errno == EAGAIN)
        return false;
    connection_close(c);
    return false;
}

static bool read_head(struct connection *c)
{
    char *end = c->in_len >= 4 ? memmem(c->in, c->in_len, "\r\n\r\n", 4) : NULL;
    if (end) {
        c->head_len = (size_t)(end - c->in) + 4;
        if (!parse_request(c)) {
            dprintf(c->fd, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
            connection_close(c);
            return false;
        }
        body_begin(c);
        c->state = READ_BODY;
        size_t early = min_u64(c->in_len - c->head_len, c->request.body_len);
        if (early) {
            body_take(c, c->in + c->head_len, early);
            memmove(c->in + c->head_len, c->in + c->head_len + early, c->in_len - c->head_len - early);
            c->in_len -= early;
        }
        return true;
    }
    if (c->in_len == HEAD_MAX) {
        connection_close(c);
        return false;
    }
    if (!c->readable)
        return false;
    size_t room = HEAD_MAX - c->in_len;
    ssize_t n = take_bytes(c, c->in + c->in_len, room);
    if (n <= 0) {
        errno = n == 0 ? EPIPE : errno;
        c->readable = false;
        return failed(c);
    }
    c->in_len += (size_t)n;
    c->readable = c->tls || (size_t)n == room;
    return true;
}

static bool is_held(const struct connection *c)
{
    return c->reply.hold_until > requests_counted(c->reply.hold_for) || !fault_has_fired(c->reply.hold_rule);
}

static bool read_body(struct connection *c)
{
    static _Thread_local char buf[READ_BYTES];
    uint64_t left = c->request.body_len - c->body_got;
    if (left > 0) {
        ssize_t n = take_bytes(c, buf, min_u64(left, sizeof buf));
        if (n <= 0) {
            errno = n == 0 ? EPIPE : errno;
            return failed(c);
        }
        body_take(c, buf, (size_t)n);
        c->readable = true;
        return true;
    }
    body_end(c);
    make_answer(c);
    head_begin(c);
    c->state = WRITE_HEAD;
    if (c->reply.delay_ns || is_held(c)) {
        c->state = WRITE_WAITING;
        wait_until(c, clock_now_ns() + c->reply.delay_ns);
    }
    return true;
}

static bool write_head(struct connection *c)
{
    if (c->out_at == c->out_len) {
        c->state = WRITE_BODY;
        return true;
    }
    bool more = c->reply.segment_count > 0 && c->reply.end == END_KEEP && !c->reply.bytes_per_second;
    ssize_t n = give_bytes(c, c->head + c->out_at, c->out_len - c->out_at, more);
    if (n < 0)
        return failed(c);
    c->out_at += (size_t)n;
    return true;
}

static bool reply_over(struct connection *c)
{
    switch (c->reply.end) {
    case END_KEEP:
        request_end(c);
        return true;
    case END_STALL:
        c->state = STALLED;
        return false;
    case END_RESET:
        /* A reset drops what the other end has not read yet: leave it a moment. */
        c->state = RESETTING;
        wait_until(c, clock_now_ns() + 5 * NS_PER_MS);
        return false;
    case END_CLOSE:
        if (c->tls)
            SSL_shutdown(c->tls);
        connection_close(c);
        return false;
    }
    return false;
}

static bool write_body(struct connection *c)
{
    struct reply *p = &c->reply;
    if (c->segment == p->segment_count)
        return reply_over(c);
    if (p->bytes_per_second && c->is_waiting)
        return false;
    struct segment *s = &p->segments[c->segment];
    /* A timer has milliseconds: what is slow, but not that slow, goes in a hundred pieces a second. */
    uint64_t piece = p->bytes_per_second ? max_u64(p->bytes_per_second / 100, 1) : UINT64_MAX;
    ssize_t n = give_segment(c, s, c->segment_at, min_u64(piece, s->len - c->segment_at));
    if (n < 0)
        return failed(c);
    c->segment_at += (uint64_t)n;
    if (c->segment_at == s->len) {
        c->segment++;
        c->segment_at = 0;
    }
    if (p->bytes_per_second)
        wait_until(c, clock_now_ns() + (uint64_t)n * NS_PER_SECOND / p->bytes_per_second);
    return true;
}

static bool step(struct connection *c)
{
    switch (c->state) {
    case READ_HEAD:
        return read_head(c);
    case READ_BODY:
        return read_body(c);
    case WRITE_HEAD:
        return write_head(c);
    case WRITE_BODY:
        return write_body(c);
    case WRITE_WAITING:
    case RESETTING:
    case STALLED:
        return false;
    }
    return false;
}

static void ready(struct connection *c, uint32_t events)
{
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        c->readable = true;
    if ((c->state == STALLED || c->state == WRITE_WAITING) && (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))) {
        connection_close(c);
        return;
    }
    while (step(c))
        ;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static int sleep_ms(const struct server_thread *t)
{
    uint64_t least = UINT64_MAX, now = clock_now_ns();
    for (const struct connection *c = t->waiting; c; c = c->next)
        least = min_u64(least, c->due_ns);
    if (least == UINT64_MAX)
        return -1;
    return least <= now ? 0 : (int)((least - now + NS_PER_MS - 1) / NS_PER_MS);
}

static void wake_due(struct server_thread *t)
{
    uint64_t now = t->waiting ? clock_now_ns() : 0;
    for (struct connection *c = t->waiting, *next; c; c = next) {
        next = c->next;
        if (c->due_ns > now)
            continue;
        if (c->state == WRITE_WAITING && is_held(c)) {
            c->due_ns = now + 5 * NS_PER_MS;
            continue;
        }
        wait_over(c);
        if (c->state == WRITE_WAITING)
            c->state = WRITE_HEAD;
        if (c->state == RESETTING)
            connection_reset(c);
        else
            while (step(c))
                ;
    }
}

void *server_thread_run(void *arg)
{
    struct server_thread *t = arg;
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int n = epoll_wait(t->epoll_fd, events, EVENTS_MAX, sleep_ms(t));
        for (int i = 0; i < n; i++)
            ready(events[i].data.ptr, events[i].events);
        wake_due(t);
    }
    return NULL;
}
