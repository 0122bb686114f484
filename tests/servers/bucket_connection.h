/* SPDX-License-Identifier: Apache-2.0 */
/* bucket_connection.h - a thread of the server and its connections. */
#pragma once

#include "bucket.h"
#include <openssl/ssl.h>

struct server_options {
    uint64_t latency_ns;      /* to the first byte of every answer */
    SSL_CTX *tls;             /* NULL: plain */
    uint64_t connections_max; /* at once, over all threads; 0: no end */
};

struct server_thread {
    int epoll_fd;
    const struct server_options *options;
    struct connection *waiting; /* those whose answer is not due yet, or goes out slowly */
};

/* Any thread: the connection belongs to `t` from now on. It is reset where there are enough. */
void connection_open(struct server_thread *t, int fd);
void *server_thread_run(void *t); /* never returns */

/* A key and a certificate for 127.0.0.1 and localhost, signed by itself; the certificate goes to `file`. */
must_check int tls_begin(const char *file, SSL_CTX **ret, struct err *err);
