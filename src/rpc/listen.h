/* SPDX-License-Identifier: Apache-2.0 */
/* listen.h - accepts connections and hands them to a gRPC server. gRPC's own listener stops for good at the first
 * accept(2) that fails. home: the server's owner; connections are handed over on the thread "rpc/listen". */
#pragma once

#include "util/err.h"
#include <grpc/grpc.h>
#include <pthread.h>

struct listener {
    grpc_server *server; /* borrowed; started */
    grpc_server_credentials *credentials;
    int fd, stop_fd, spare_fd; /* owned; -1: none. The spare is given up to hang up when no descriptor is left. */
    pthread_t thread;
    bool runs;
};

/* Binds the path, and accepts until listener_stop. *l is ready for listener_stop even after a failure. */
must_check int listener_start(struct listener *l, grpc_server *server, const char *path, struct err *err);
void listener_stop(struct listener *l); /* may run twice, and on a zeroed listener */
