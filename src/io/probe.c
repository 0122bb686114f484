/* SPDX-License-Identifier: Apache-2.0 */
#include "probe.h"
#include "util/file.h"
#include "util/thread.h"
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { ANSWER_SECONDS = 8, CALLERS_MAX = 16 };

/* An abstract name: it needs no file, and ends with the process. */
static int find_address(const char *verb, const char *dir, struct sockaddr_un *ret, socklen_t *ret_size,
                        struct err *err)
{
    struct stat st;
    if (stat(dir, &st) != 0)
        return err_sys(err, errno, "cannot read '%s'", dir);
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(ret->sun_path + 1, sizeof ret->sun_path - 1, "cistern-%.20s-%" PRIx64 "-%" PRIx64, verb,
                     (uint64_t)st.st_dev, (uint64_t)st.st_ino);
    *ret_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    return 0;
}

static void *answer(void *ctx)
{
    int listener = *(int *)ctx;
    free(ctx);
    for (;;) {
        auto_fd caller = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (caller >= 0)
            (void)!send(caller, "", 1, MSG_NOSIGNAL);
        else
            sleep(1); /* out of descriptors */
    }
    return NULL;
}

int probe_serve(const char *verb, const char *dir, struct err *err)
{
    struct sockaddr_un a;
    socklen_t size;
    pthread_t thread;
    auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (find_address(verb, dir, &a, &size, err) < 0)
        return -(int)err->code;
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, size) != 0 || listen(fd, CALLERS_MAX) != 0)
        return fd >= 0 && errno == EADDRINUSE ? 0 : err_sys(err, errno, "cannot answer probes");
    int *own_fd = xcalloc(1, sizeof *own_fd);
    *own_fd = fd;
    int r = thread_start_named(&thread, "probe", answer, own_fd, err);
    if (r < 0) {
        free(own_fd);
        return r;
    }
    (void)take_fd(&fd);
    pthread_detach(thread);
    return 0;
}

/* Any user can bind the name first. */
static bool is_ours(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

int probe_ask(const char *verb, const char *dir, struct err *err)
{
    struct sockaddr_un a;
    socklen_t size;
    char byte;
    struct timeval limit = {.tv_sec = ANSWER_SECONDS};
    auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (find_address(verb, dir, &a, &size, err) < 0)
        return -(int)err->code;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0)
        return err_sys(err, errno, "cannot make a socket");
    bool is_served = connect(fd, (struct sockaddr *)&a, size) == 0 && is_ours(fd);
    ssize_t n = is_served ? recv(fd, &byte, 1, 0) : -1;
    if (is_served && n < 0 && errno == EAGAIN)
        return err_set(err, ERR_TIMEOUT, "`cistern %s` of '%s' does not answer", verb, dir);
    return n == 1 ? 0 : err_set(err, ERR_NOT_FOUND, "no `cistern %s` runs for '%s'", verb, dir);
}
