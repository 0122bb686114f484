/* SPDX-License-Identifier: Apache-2.0 */
#include "socket.h"
#include "util/str.h"
#include <stdio.h>
#include <sys/random.h>
#include <sys/un.h>

int socket_name_init(struct socket_name *n, const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    if (path[0] != '/' || !slash[1])
        return err_set(err, ERR_INVALID, "the socket '%s' must be an absolute path", path);
    *n = (struct socket_name){0};
    int len = snprintf(n->path, sizeof n->path, "%s", path);
    /* Not the process's number: two drivers in containers of their own are both number 1. */
    unsigned random = 0;
    (void)!getrandom(&random, sizeof random, 0);
    int temporary =
        snprintf(n->temporary, sizeof n->temporary, "%.*s/.%s.%08x", (int)(slash - path), path, slash + 1, random);
    size_t room = sizeof((struct sockaddr_un *)NULL)->sun_path;
    if (len >= (int)sizeof n->path || temporary >= (int)room)
        return err_set(err, ERR_INVALID, "the socket '%s' is too long: %zu bytes are left for its path", path,
                       room - 1 - (size_t)(temporary - len));
    struct stat st;
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s/", (int)(slash - path), path);
    if (stat(folder, &st) != 0)
        return err_sys(err, errno, "cannot make the socket '%s'", path);
    return 0;
}

int socket_name_publish(struct socket_name *n, struct err *err)
{
    struct stat st;
    if (chmod(n->temporary, 0600) != 0 || stat(n->temporary, &st) != 0)
        return err_sys(err, errno, "cannot set up the socket '%s'", n->temporary);
    if (rename(n->temporary, n->path) != 0)
        return err_sys(err, errno, "cannot rename '%s' to '%s'", n->temporary, n->path);
    n->dev = st.st_dev;
    n->ino = st.st_ino;
    n->published = true;
    return 0;
}

bool socket_name_is_ours(const struct socket_name *n)
{
    struct stat st;
    return n->published && lstat(n->path, &st) == 0 && st.st_dev == n->dev && st.st_ino == n->ino;
}

void socket_name_remove(struct socket_name *n)
{
    if (socket_name_is_ours(n))
        unlink(n->path);
    n->published = false;
}
