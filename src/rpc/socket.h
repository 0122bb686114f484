/* SPDX-License-Identifier: Apache-2.0 */
/* socket.h - publishes a unix socket at its path, accepts connections for a gRPC server, and removes the socket.
 * home: the thread that owns the struct; the thread "rpc/listen" accepts. gRPC's own listener stops at the first
 * accept(2) that fails.
 *
 * Two drivers overlap while a DaemonSet is updated. So a socket is bound to a temporary path and renamed when it
 * accepts calls. It is removed at the end only if the path is still this socket. */
#pragma once

#include "util/accept.h"
#include <grpc/grpc.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>

struct socket_name {
    char path[PATH_MAX];
    char temporary[PATH_MAX];
    dev_t dev;
    ino_t ino;
    bool published;
};

/* Checks the path (absolute, short enough for the kernel, in an existing directory). Creates nothing. */
must_check int socket_name_init(struct socket_name *n, const char *path, struct err *err);
/* After the bind: lets only root connect, and replaces the old socket. */
must_check int socket_name_publish(struct socket_name *n, struct err *err);
bool socket_name_is_ours(const struct socket_name *n);
void socket_name_remove(struct socket_name *n); /* may run twice */

struct listener {
    grpc_server *server; /* borrowed; started */
    grpc_server_credentials *credentials;
    struct acceptor acceptor; /* its descriptor: owned */
    int stop_fd;              /* owned; -1: none */
    pthread_t thread;
    bool runs;
};

/* Binds the path, and accepts until listener_stop. *l is ready for listener_stop even after a failure. */
must_check int listener_start(struct listener *l, grpc_server *server, const char *path, struct err *err);
void listener_stop(struct listener *l); /* may run twice, and on a zeroed listener */
