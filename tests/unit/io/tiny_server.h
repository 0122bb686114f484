/* SPDX-License-Identifier: Apache-2.0 */
/* tiny_server.h - an HTTP server inside the test, a thread for each connection. The path chooses its behaviour.
 *   /bytes/N   N bytes, byte i is 'a' + i % 26      /cut/N     says 1000 bytes, gives N, closes
 *   /reset/N   N bytes of a right answer, then RST  /stall/N   N bytes of a right answer, then silence
 *   /slow/N    N bytes, one in 20 ms                /raw/TEXT  TEXT (percent-decoded) and closes
 *   /echo      the request's body                   /headers   the request's head as the body
 *   /drop      closes without an answer             /early     404 before the body was read, closes
 *   /hints, /lines, /trailers: a 103, a header, a trailer in 20 ms, until the client closes */
#pragma once

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct tiny_server {
    int fd;
    int port;
    pthread_t thread;
    _Atomic unsigned connections;
    _Atomic unsigned open; /* of them */
    _Atomic unsigned requests;
};

struct tiny_connection {
    struct tiny_server *server;
    int fd;
};

static int tiny_send(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0)
            return -1;
        bytes += n;
        len -= (size_t)n;
    }
    return 0;
}

static char *tiny_pattern(size_t len)
{
    char *p = malloc(len + 1);
    for (size_t i = 0; i < len; i++)
        p[i] = (char)('a' + i % 26);
    return p;
}

static int tiny_answer(int fd, const char *body, size_t len, size_t only, unsigned pause_us)
{
    char head[160];
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nX-Twice: one\r\nX-Twice: two\r\n\r\n", len);
    size_t total = (size_t)n + len;
    char *all = malloc(total);
    memcpy(all, head, (size_t)n);
    memcpy(all + n, body, len);
    only = only < total ? only : total;
    size_t at_once = pause_us ? (size_t)n : only; /* the head */
    int r = tiny_send(fd, all, at_once);
    for (size_t i = at_once; i < only && r == 0; i++) {
        r = tiny_send(fd, all + i, 1);
        usleep(pause_us);
    }
    free(all);
    return r;
}

static void tiny_reset(int fd)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    /* Let the sent bytes leave before the reset. */
    usleep(20000);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

static void tiny_raw(int fd, const char *text)
{
    for (; *text && *text != ' '; text++) {
        char c = *text;
        unsigned code;
        if (c == '%' && sscanf(text + 1, "%2x", &code) == 1) {
            c = (char)code;
            text += 2;
        }
        tiny_send(fd, &c, 1);
    }
}

static void tiny_drip(int fd, const char *path)
{
    const char *line = "X-More: more\r\n";
    if (strcmp(path, "/hints") == 0)
        line = "HTTP/1.1 103 Early Hints\r\nX-More: more\r\n\r\n";
    else
        tiny_raw(fd, "HTTP/1.1%20200%20OK%0d%0a");
    if (strcmp(path, "/trailers") == 0)
        tiny_raw(fd, "Transfer-Encoding:%20chunked%0d%0a%0d%0a1%0d%0aa%0d%0a0%0d%0a");
    while (tiny_send(fd, line, strlen(line)) == 0)
        usleep(20000);
}

/* Negative ends the connection. */
static int tiny_do(int fd, const char *head, const char *path, const char *body, size_t body_len)
{
    size_t n = strrchr(path, '/') ? strtoul(strrchr(path, '/') + 1, NULL, 10) : 0;
    char *pattern = tiny_pattern(n > 1000 ? n : 1000);
    int r = -1;
    if (strncmp(path, "/bytes/", 7) == 0)
        r = tiny_answer(fd, pattern, n, SIZE_MAX, 0);
    else if (strncmp(path, "/slow/", 6) == 0)
        r = tiny_answer(fd, pattern, n, SIZE_MAX, 20000);
    else if (strncmp(path, "/cut/", 5) == 0)
        tiny_answer(fd, pattern, 1000, n, 0);
    else if (strncmp(path, "/reset/", 7) == 0)
        tiny_answer(fd, pattern, 1000, n, 0), tiny_reset(fd);
    else if (strncmp(path, "/stall/", 7) == 0)
        tiny_answer(fd, pattern, 1000, n, 0), recv(fd, pattern, 1, 0);
    else if (strncmp(path, "/raw/", 5) == 0)
        tiny_raw(fd, path + 5);
    else if (strncmp(path, "/echo", 5) == 0)
        r = tiny_answer(fd, body, body_len, SIZE_MAX, 0);
    else if (strcmp(path, "/hints") == 0 || strcmp(path, "/lines") == 0 || strcmp(path, "/trailers") == 0)
        tiny_drip(fd, path);
    else if (strncmp(path, "/headers", 8) == 0)
        r = tiny_answer(fd, head, strlen(head), SIZE_MAX, 0);
    free(pattern);
    return r;
}

static void *tiny_connection_run(void *arg)
{
    struct tiny_connection c = *(struct tiny_connection *)arg;
    free(arg);
    size_t room = 4 << 20;
    char *buf = malloc(room + 1);
    for (;;) {
        size_t len = 0, body_len = 0;
        char *end = NULL;
        buf[0] = '\0';
        while (!(end = strstr(buf, "\r\n\r\n"))) {
            ssize_t n = recv(c.fd, buf + len, 8192, 0);
            if (n <= 0)
                break;
            len += (size_t)n;
            buf[len] = '\0';
        }
        if (!end)
            break;
        atomic_fetch_add(&c.server->requests, 1);
        char *body = end + 4, *length = strcasestr(buf, "\r\nContent-Length: ");
        char method[16], path[512];
        sscanf(buf, "%15s %511s", method, path);
        if (strncmp(path, "/early", 6) == 0) {
            tiny_raw(c.fd, "HTTP/1.1%20404%20No%0d%0aContent-Length:%202%0d%0aConnection:%20close%0d%0a%0d%0ano");
            usleep(50000);
            break;
        }
        body_len = length ? strtoul(length + 18, NULL, 10) : 0;
        while (len < (size_t)(body - buf) + body_len) {
            ssize_t n = recv(c.fd, buf + len, room - len, 0);
            if (n <= 0)
                break;
            len += (size_t)n;
        }
        char *head = strndup(buf, (size_t)(body - buf));
        int r = tiny_do(c.fd, head, path, body, body_len);
        free(head);
        if (r < 0)
            break;
    }
    free(buf);
    close(c.fd);
    atomic_fetch_sub(&c.server->open, 1);
    return NULL;
}

static void *tiny_run(void *arg)
{
    struct tiny_server *s = arg;
    for (int fd; (fd = accept(s->fd, NULL, NULL)) >= 0;) {
        struct tiny_connection *c = malloc(sizeof *c);
        pthread_t thread;
        *c = (struct tiny_connection){s, fd};
        atomic_fetch_add(&s->connections, 1);
        atomic_fetch_add(&s->open, 1);
        pthread_create(&thread, NULL, tiny_connection_run, c);
        pthread_detach(thread);
    }
    return NULL;
}

static void tiny_server_start(struct tiny_server *s)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    s->connections = s->open = s->requests = 0;
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(s->fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(s->fd, 128) < 0)
        abort();
    getsockname(s->fd, (struct sockaddr *)&a, &len);
    s->port = ntohs(a.sin_port);
    pthread_create(&s->thread, NULL, tiny_run, s);
}

static void tiny_server_stop(struct tiny_server *s)
{
    shutdown(s->fd, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->fd);
    while (s->open) /* its threads still write to the struct */
        usleep(1000);
}
