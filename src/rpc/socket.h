/* SPDX-License-Identifier: Apache-2.0 */
/* socket.h - the life of a unix socket's name. home: whoever owns the struct.
 *
 * Two drivers overlap while a DaemonSet rolls: so a socket is bound under a dot-name, renamed over the old one when it
 * answers, and removed at the end only if the name still leads to it. */
#pragma once

#include "util/err.h"
#include <limits.h>
#include <sys/stat.h>

struct socket_name {
    char path[PATH_MAX];
    char temporary[PATH_MAX];
    dev_t dev;
    ino_t ino;
    bool published;
};

/* Checks the path (absolute, short enough for the kernel, in a folder that is there). Nothing is made. */
must_check int socket_name_init(struct socket_name *n, const char *path, struct err *err);
/* After the bind: only root may connect, and the old socket is replaced. */
must_check int socket_name_publish(struct socket_name *n, struct err *err);
bool socket_name_is_ours(const struct socket_name *n);
void socket_name_remove(struct socket_name *n); /* may run twice */
