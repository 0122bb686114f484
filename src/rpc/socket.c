/* SPDX-License-Identifier: Apache-2.0 */
#include "socket.h"
#include "util/str.h"
#include "util/thread.h"
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

int socket_name_init(struct socket_name *n, const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    if (path[0] != '/' || !slash[1])
        return err_set(err, ERR_INVALID, "the socket '%s' must be an absolute path", path);
    *n = (struct socket_name){0};
    int len = snprintf(n->path, sizeof n->path, "%s", path);
    /* Not the process id: two drivers in containers both have process id 1. */
    unsigned random = 0;
    (void)!getrandom(&random, sizeof random, 0);
    int temporary =
        snprintf(n->temporary, sizeof n->temporary, "%.*s/.%s.%08x", (int)(slash - path), path, slash + 1, random);
    size_t room = sizeof((struct sockaddr_un *)NULL)->sun_path;
    if (len >= (int)sizeof n->path || temporary >= (int)room)
        return err_set(err, ERR_INVALID, "the path of the socket '%s' is too long: the maximum is %zu bytes", path,
                       room - 1 - (size_t)(temporary - len));
    struct stat st;
    char directory[PATH_MAX];
    snprintf(directory, sizeof directory, "%.*s/", (int)(slash - path), path);
    if (stat(directory, &st) == 0)
        return 0;
    err_sys(err, errno, "cannot make the socket '%s'", path);
    return err_advise(err, CIS_SOCKET_LISTEN);
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

/* ---- accepting --------------------------------------------------------------------------------------------------- */

/* False: pause before the next attempt. */
static bool accept_one(struct listener *l)
{
    bool pause;
    int fd = acceptor_next(&l->acceptor, SOCK_CLOEXEC | SOCK_NONBLOCK, &pause);
    if (fd >= 0)
        grpc_server_add_channel_from_fd(l->server, fd, l->credentials);
    return !pause;
}

static void *listen_main(void *ctx)
{
    struct listener *l = ctx;
    bool pause = false;
    for (;;) {
        struct pollfd p[] = {{.fd = l->stop_fd, .events = POLLIN}, {.fd = l->acceptor.fd, .events = POLLIN}};
        if (poll(p, pause ? 1 : 2, pause ? ACCEPT_PAUSE_MS : -1) < 0 && errno != EINTR)
            pause = true;
        else if (p[0].revents)
            return NULL;
        else
            pause = p[1].revents && !accept_one(l);
    }
}

static int bind_socket(const char *path, int *ret_fd, struct err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int n = snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    if (n >= (int)sizeof a.sun_path)
        return err_set(err, ERR_INVALID, "the path of the socket '%s' is too long", path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, SOMAXCONN) != 0)
        return err_sys(err, errno, "cannot listen on the socket '%s'", path);
    *ret_fd = take_fd(&fd);
    return 0;
}

int listener_start(struct listener *l, grpc_server *server, const char *path, struct err *err)
{
    int fd = -1;
    *l = (struct listener){.server = server, .stop_fd = -1, .acceptor = {-1, -1}};
    l->credentials = grpc_insecure_server_credentials_create();
    int r = bind_socket(path, &fd, err);
    if (r < 0)
        return r;
    acceptor_init(&l->acceptor, fd);
    l->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (l->stop_fd < 0)
        return err_sys(err, errno, "cannot make an eventfd for thread 'rpc/listen'");
    r = thread_start_named(&l->thread, "rpc/listen", listen_main, l, err);
    l->runs = r == 0;
    return r;
}

void listener_stop(struct listener *l)
{
    if (!l->credentials)
        return;
    if (l->runs) {
        (void)!write(l->stop_fd, &(uint64_t){1}, sizeof(uint64_t));
        pthread_join(l->thread, NULL);
    }
    fd_close(&l->acceptor.fd);
    fd_close(&l->stop_fd);
    acceptor_done(&l->acceptor);
    grpc_server_credentials_release(l->credentials);
    *l = (struct listener){0};
}
