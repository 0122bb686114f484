/* SPDX-License-Identifier: Apache-2.0 */
#include "util/clock.h"
#include "web_error.h"
#include "web_private.h"
#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>

/* libcurl has one receive buffer a transfer. It is large enough for a small object in one call, and small enough that
 * 512 of them fit beside the budget. Larger objects use the largest buffer that libcurl allows: each receive costs this
 * process an acknowledgement and the packets that follow it. */
enum { RECEIVE_BYTES = 128 << 10, RECEIVE_BYTES_MOST = 512 << 10, SEND_BYTES = 256 << 10 };

enum { HEADERS_MAX = 128, HEADER_BYTES_MAX = 64 << 10 };

/* libcurl stores the trailers of a chunked body without a limit of its own. */
enum { TRAILER_BYTES_MAX = 64 << 10 };

/* ---- the reply --------------------------------------------------------------------------------------------------- */

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
    return str_trim(str_of(h->value)); /* libcurl keeps the line end of a header without a value */
}

/* ---- callbacks of libcurl ---------------------------------------------------------------------------------------- */

static void job_moved(struct web_job *j, uint64_t body_bytes)
{
    uint64_t now = loop_now_ns(j->web->loop);
    j->progress.moved_bytes += body_bytes;
    if (body_bytes == 0 || j->progress.moved_bytes >= j->request.stall_bytes) {
        j->progress.moved_ns = now;
        j->progress.moved_bytes = 0;
    }
    uint64_t wait = j->request.rate && body_bytes ? rate_reserve(j->request.rate, body_bytes, now) : 0;
    if (wait) {
        j->rate_wait_until_ns = now + wait;
        loop_timer_set(j->web->loop, &j->rate_timer, wait);
    }
}

void web_transfer_rate_wait_ended(struct timer *t)
{
    struct web_job *j = container_of(t, struct web_job, rate_timer);
    j->rate_wait_until_ns = 0;
    j->progress.moved_ns = loop_now_ns(j->web->loop);
    j->progress.moved_bytes = 0;
    web_job_schedule(j, STEP_RESUME);
}

/* A cancelled job gets no callback but on_done. */
static bool job_is_over(const struct web_job *j)
{
    return j->aborted || (j->steps & (STEP_CANCEL | STEP_TIMEOUT));
}

bool web_transfer_is_flooded(const struct web_job *j)
{
    return j->trailer_bytes > TRAILER_BYTES_MAX;
}

static size_t header_came(char *bytes, size_t size, size_t count, void *ctx)
{
    struct web_job *j = ctx;
    size_t len = size * count;
    if (job_is_over(j))
        return 0;
    if (j->head_reported)
        j->trailer_bytes += len;
    if (web_transfer_is_flooded(j))
        return 0;
    if (j->progress.first_byte_ns == 0)
        j->progress.first_byte_ns = loop_now_ns(j->web->loop) - j->progress.started_ns;
    bool blank = len <= 2 && (bytes[0] == '\r' || bytes[0] == '\n');
    /* 1xx replies precede the final one; a second blank line ends the trailers. */
    if (!blank || j->head_reported || web_status(j) < 200)
        return len;
    /* Only the end of the head counts as progress: a server could send single headers without end. */
    job_moved(j, 0);
    j->head_reported = true;
    /* One of many servers behind a name may be broken: the next request must not use the same connection. */
    if (web_status(j) >= 500)
        curl_easy_setopt(j->easy, CURLOPT_FORBID_REUSE, 1L);
    if (j->request.on_head)
        j->aborted = j->request.on_head(j->request.ctx, j);
    return j->aborted < 0 ? 0 : len;
}

static size_t body_came(char *bytes, size_t size, size_t count, void *ctx)
{
    struct web_job *j = ctx;
    size_t len = size * count;
    if (job_is_over(j))
        return len + 1;
    if (j->rate_wait_until_ns || j->paused)
        return CURL_WRITEFUNC_PAUSE;
    int r = j->request.on_body ? j->request.on_body(j->request.ctx, bytes, len) : 0;
    if (r == WEB_PAUSE) {
        j->paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    if (r < 0) {
        j->aborted = r;
        return len + 1;
    }
    j->progress.received += len;
    job_moved(j, len);
    return len;
}

/* A kept connection may have been opened for a request without a guard. */
static bool may_be_sent(struct web_job *j, const char *address, int port)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, address, &four.sin_addr) == 1)
        return web_socket_may_connect(j, (const struct sockaddr *)&four);
    return inet_pton(AF_INET6, address, &six.sin6_addr) == 1 &&
           web_socket_may_connect(j, (const struct sockaddr *)&six);
}

/* The address in a URL; NULL: a name. */
static const char *address_of(char *host, char buf[INET_ADDRSTRLEN])
{
    struct in_addr four;
    struct in6_addr six;
    struct str rest = str_of(host), label, last = STR_NULL;
    while (str_split(&rest, '.', &label))
        last = label.len ? label : last;
    if (str_eq_nocase(last, STR("localhost")))
        return "127.0.0.1";
    if (host[0] == '[') {
        *strchrnul(++host, ']') = '\0';
        return inet_pton(AF_INET6, host, &six) == 1 ? host : NULL;
    }
    /* For libcurl, a number with a dot at the end is a name. A proxy may ignore the dot, and read each spelling. */
    for (size_t len = strlen(host); len > 0 && host[len - 1] == '.'; len--)
        host[len - 1] = '\0';
    return inet_aton(host, &four) ? inet_ntop(AF_INET, &four, buf, INET_ADDRSTRLEN) : NULL;
}

/* A proxy connects for this process, and looks names up: only an address can be checked. */
static int check_host(struct web_job *j, const char *url, struct err *err)
{
    CURLU *u = curl_url();
    char *host = NULL, *port = NULL, buf[INET_ADDRSTRLEN];
    uint64_t number;
    bool is_open = true;
    if (curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK && curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
        curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
        str_to_u64(str_of(port), &number, ERR_IGNORED) == 0) {
        const char *address = address_of(host, buf);
        is_open = !address || may_be_sent(j, address, (int)number);
    }
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(u);
    return is_open ? 0 : web_socket_blocked(j, url, err);
}

/* libcurl silently repeats a request if a kept connection is closed before the first byte of the reply. Mostly the
 * server never saw it, but it may have processed it before it died. */
static int about_to_send(void *ctx, char *to, char *, int to_port, int)
{
    struct web_job *j = ctx;
    j->is_repeat = j->request.once && j->sends > 0;
    if (j->is_repeat)
        return CURL_PREREQFUNC_ABORT;
    j->sends++;
    j->is_sent = true;
    /* Without an address, the connection was reset before libcurl asked for it: sending fails for that cause. */
    return !to[0] || may_be_sent(j, to, to_port) ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

static size_t body_wanted(char *room, size_t size, size_t count, void *ctx)
{
    struct web_job *j = ctx;
    const struct web_request *r = &j->request;
    if (job_is_over(j))
        return CURL_READFUNC_ABORT;
    if (j->rate_wait_until_ns)
        return CURL_READFUNC_PAUSE;
    size_t len = (size_t)min_u64(size * count, r->body_len - j->progress.sent);
    ssize_t n = (ssize_t)len;
    if (r->body)
        memcpy(room, (const char *)r->body + j->progress.sent, len);
    else if (len > 0)
        n = r->body_read(r->ctx, room, len);
    if (n < 0 || (n == 0 && len > 0)) { /* a body shorter than body_len would leave the store waiting */
        j->aborted = -ERR_IO;
        return CURL_READFUNC_ABORT;
    }
    assert((size_t)n <= len);
    j->progress.sent += (uint64_t)n;
    job_moved(j, (uint64_t)n);
    return (size_t)n;
}

static int body_again(void *ctx, curl_off_t offset, int origin)
{
    struct web_job *j = ctx;
    const struct web_request *r = &j->request;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > r->body_len)
        return CURL_SEEKFUNC_FAIL;
    if (!r->body && (!r->body_seek || r->body_seek(r->ctx, (uint64_t)offset) < 0))
        return CURL_SEEKFUNC_FAIL;
    j->progress.sent = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* ---- options of an easy handle ----------------------------------------------------------------------------------- */

static void set_blob(CURL *e, CURLoption option, char *text, size_t len)
{
    struct curl_blob blob = {.data = text, .len = len, .flags = CURL_BLOB_NOCOPY};
    if (len > 0)
        curl_easy_setopt(e, option, &blob);
}

static void prepare_trust(struct web *w, CURL *e)
{
    const struct web_options *o = &w->options;
    curl_easy_setopt(e, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (w->ca_file)
        curl_easy_setopt(e, CURLOPT_CAINFO, w->ca_file);
    if (o->any_server) {
        curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    set_blob(e, CURLOPT_CAINFO_BLOB, w->ca, o->ca.len);
    set_blob(e, CURLOPT_SSLCERT_BLOB, w->certificate, o->certificate.len);
    set_blob(e, CURLOPT_SSLKEY_BLOB, w->key, o->key.len);
}

/* Sets the options that do not depend on the request. */
void web_transfer_prepare(struct web_job *j)
{
    struct web *w = j->web;
    const struct web_options *o = &w->options;
    CURL *e = j->easy;
    curl_easy_setopt(e, CURLOPT_PRIVATE, j);
    curl_easy_setopt(e, CURLOPT_SHARE, w->share);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, j->error);
    curl_easy_setopt(e, CURLOPT_USERAGENT, "cistern/" CISTERN_VERSION);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_HTTP_CONTENT_DECODING, 0L);
    curl_easy_setopt(e, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L); /* "a/../b" is a key like any other, and is signed unchanged */
    curl_easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, (long)SEND_BYTES);
    curl_easy_setopt(e, CURLOPT_TCP_NODELAY, 1L);
    /* Detects a peer that is gone within two minutes, also for a watch, which only receives. */
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPIDLE, 30L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPINTVL, 10L);
    curl_easy_setopt(e, CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L); /* spread over a store's many front ends */
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)(o->connect_timeout_ns / NS_PER_MS));
    prepare_trust(w, e);
    web_sockets_prepare(w, e, j);
    curl_easy_setopt(e, CURLOPT_PREREQFUNCTION, about_to_send);
    curl_easy_setopt(e, CURLOPT_PREREQDATA, j);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, header_came);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, j);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, body_came);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, j);
    curl_easy_setopt(e, CURLOPT_READFUNCTION, body_wanted);
    curl_easy_setopt(e, CURLOPT_READDATA, j);
    curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, body_again);
    curl_easy_setopt(e, CURLOPT_SEEKDATA, j);
}

/* A line break in a value, such as a key or a token, would add another header. */
static bool is_header_text(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] < ' ' && s.ptr[i] != '\t')
            return false;
    return true;
}

static bool has_body(const struct web_request *r)
{
    return r->body || r->body_read || strcmp(r->method, "PUT") == 0 || strcmp(r->method, "POST") == 0;
}

/* Copies the headers into two blocks that the job keeps from request to request. */
static int set_headers(struct web_job *j, const struct web_request *r, struct err *err)
{
    size_t room = sizeof "Expect:", count = r->header_count + 1;
    for (size_t i = 0; i < r->header_count; i++) {
        if (!is_header_text(r->headers[i].value) || !is_header_text(str_of(r->headers[i].name)))
            return err_set(err, ERR_INVALID, "the value of header '%s' has a control character", r->headers[i].name);
        room += strlen(r->headers[i].name) + r->headers[i].value.len + 3;
    }
    if (r->header_count > HEADERS_MAX || room > HEADER_BYTES_MAX)
        return err_set(err, ERR_INVALID, "%zu headers of %zu bytes are too many for a request", r->header_count, room);
    if (room > j->headers.text_room)
        j->headers.text = xrealloc(j->headers.text, j->headers.text_room = room, 1);
    if (count > j->headers.lines_room)
        j->headers.lines = xrealloc(j->headers.lines, j->headers.lines_room = count, sizeof *j->headers.lines);
    char *at = j->headers.text;
    for (size_t i = 0; i < count; i++) {
        j->headers.lines[i] = (struct curl_slist){.data = at, .next = i + 1 < count ? &j->headers.lines[i + 1] : NULL};
        if (i == r->header_count) {
            memcpy(at, "Expect:", sizeof "Expect:"); /* no wait for 100 Continue */
            break;
        }
        const struct web_header *h = &r->headers[i];
        at = stpcpy(at, h->name);
        if (h->value.len)
            at = mempcpy(mempcpy(at, ": ", 2), h->value.ptr, h->value.len);
        else
            *at++ = ';'; /* libcurl's way to send a header without a value */
        *at++ = '\0';
    }
    return 0;
}

static int set_way(struct web_job *j, const struct web_request *r, struct err *err)
{
    CURL *e = j->easy;
    struct curl_blob given = {.data = (void *)r->ca.ptr, .len = r->ca.len, .flags = CURL_BLOB_COPY};
    if (r->ca.len)
        curl_easy_setopt(e, CURLOPT_CAINFO_BLOB, &given);
    if (!r->connect_to)
        return 0;
    int n = snprintf(j->connect_text, sizeof j->connect_text, "::%s", r->connect_to);
    if (n < 0 || (size_t)n >= sizeof j->connect_text)
        return err_set(err, ERR_INVALID, "the address '%.64s...' is too long", r->connect_to);
    j->connect_to = (struct curl_slist){.data = j->connect_text};
    curl_easy_setopt(e, CURLOPT_CONNECT_TO, &j->connect_to);
    curl_easy_setopt(e, CURLOPT_PROXY, "");
    return 0;
}

int web_transfer_set(struct web_job *j, const struct web_request *r, struct err *err)
{
    CURL *e = j->easy;
    bool is_checked = j->web->options.guard && !r->unguarded && !j->web->hosts_wanted;
    int code = is_checked ? check_host(j, r->url, err) : 0;
    if (code == 0)
        code = set_headers(j, r, err);
    if (code == 0)
        code = set_way(j, r, err);
    if (code < 0)
        return code;
    bool is_get = strcmp(r->method, "GET") == 0, is_head = strcmp(r->method, "HEAD") == 0;
    j->is_read = is_get || is_head;
    if (has_body(r)) {
        curl_easy_setopt(e, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->body_len);
    } else if (is_head)
        curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
    else
        curl_easy_setopt(e, CURLOPT_HTTPGET, 1L);
    curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, is_get || is_head ? NULL : r->method);
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, j->headers.lines);
    curl_easy_setopt(e, CURLOPT_BUFFERSIZE,
                     (long)(r->expect_bytes > RECEIVE_BYTES ? RECEIVE_BYTES_MOST : RECEIVE_BYTES));
    curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, (long)r->new_connection);
    CURLcode set = curl_easy_setopt(e, CURLOPT_URL, r->url);
    if (set != CURLE_OK)
        return web_translate(&(struct web_failure){.code = set, .url = r->url}, err);
    return 0;
}
