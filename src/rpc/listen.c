/* SPDX-License-Identifier: Apache-2.0 */
#include "listen.h"
#include "util/str.h"
#include "util/thread.h"
#include <fcntl.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { BACKOFF_MS = 100 };

static int open_spare(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Without a descriptor left the caller is told at once: it would wait in the queue until its deadline. */
static bool hang_up(struct listener *l)
{
    if (l->spare_fd < 0)
        return false;
    close(l->spare_fd);
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    l->spare_fd = open_spare();
    return fd >= 0;
}

/* False: pause before the next attempt, so that an error that stays does not take the processor. */
static bool accept_one(struct listener *l)
{
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        grpc_server_add_channel_from_fd(l->server, fd, l->credentials);
        if (l->spare_fd < 0)
            l->spare_fd = open_spare();
        return true;
    }
    if (errno == EMFILE || errno == ENFILE)
        return hang_up(l);
    return errno == EINTR || errno == ECONNABORTED;
}

static void *listen_main(void *ctx)
{
    struct listener *l = ctx;
    bool pause = false;
    for (;;) {
        struct pollfd p[] = {{.fd = l->stop_fd, .events = POLLIN}, {.fd = l->fd, .events = POLLIN}};
        if (poll(p, pause ? 1 : 2, pause ? BACKOFF_MS : -1) < 0 && errno != EINTR)
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
    *l = (struct listener){.server = server, .fd = -1, .stop_fd = -1, .spare_fd = -1};
    l->credentials = grpc_insecure_server_credentials_create();
    int r = bind_socket(path, &l->fd, err);
    if (r < 0)
        return r;
    l->spare_fd = open_spare();
    l->stop_fd = eventfd(0, EFD_CLOEXEC);
    int e = l->stop_fd < 0 ? errno : thread_start(&l->thread, listen_main, l);
    if (e)
        return err_sys(err, e, "cannot start the thread 'rpc/listen'");
    pthread_setname_np(l->thread, "rpc/listen");
    l->runs = true;
    return 0;
}

void listener_stop(struct listener *l)
{
    if (!l->credentials)
        return;
    if (l->runs) {
        (void)!write(l->stop_fd, &(uint64_t){1}, sizeof(uint64_t));
        pthread_join(l->thread, NULL);
    }
    int fds[] = {l->fd, l->stop_fd, l->spare_fd};
    for (size_t i = 0; i < countof(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    grpc_server_credentials_release(l->credentials);
    *l = (struct listener){0};
}
