/* SPDX-License-Identifier: Apache-2.0 */
#include "util/accept.h"
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static void open_spare(struct acceptor *a)
{
    if (a->spare_fd < 0)
        a->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void acceptor_init(struct acceptor *a, int fd)
{
    *a = (struct acceptor){.fd = fd, .spare_fd = -1};
    open_spare(a);
}

void acceptor_done(struct acceptor *a)
{
    fd_close(&a->spare_fd);
}

/* Whether a connection was accepted and closed. If it left before, the pause of the caller does no harm. */
static bool hang_up(struct acceptor *a)
{
    if (a->spare_fd < 0)
        return false;
    acceptor_done(a);
    int fd = accept4(a->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    open_spare(a);
    return fd >= 0;
}

int acceptor_next(struct acceptor *a, int flags, bool *ret_pause)
{
    int fd = accept4(a->fd, NULL, NULL, flags);
    *ret_pause = false;
    if (fd >= 0)
        open_spare(a);
    else if (errno == EMFILE || errno == ENFILE)
        *ret_pause = !hang_up(a);
    else
        *ret_pause = errno != EINTR && errno != ECONNABORTED;
    return fd;
}
