/* SPDX-License-Identifier: Apache-2.0 */
#include "probe.h"
#include "io/loop.h"
#include "util/thread.h"
#include <inttypes.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { ANSWER_SECONDS = 8, CALLERS_MAX = 16 };

/* Loops and main make calls of the file system. Linux fails a request to an NVMe or SCSI disk after three minutes (30 s
 * and five retries), and a turn may need several. */
#define STUCK_NS (600 * NS_PER_SECOND)

static _Atomic uint64_t beat_ns; /* main's last; 0: none yet */

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

void probe_beat(void)
{
    atomic_store(&beat_ns, clock_now_ns());
}

/* ret_thread: the name of a stuck thread, or empty. */
static void find_stuck(char ret_thread[LOOP_NAME_MAX])
{
    uint64_t last_ns = atomic_load(&beat_ns);
    if (last_ns && clock_now_ns() - last_ns > STUCK_NS)
        snprintf(ret_thread, LOOP_NAME_MAX, "main");
    else if (!loop_find_stuck(STUCK_NS, ret_thread))
        ret_thread[0] = '\0';
}

static void *answer(void *ctx)
{
    int listener = *(int *)ctx;
    free(ctx);
    for (;;) {
        char stuck[LOOP_NAME_MAX] = "";
        auto_fd caller = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        find_stuck(stuck);
        if (caller >= 0)
            (void)!send(caller, stuck, sizeof stuck, MSG_NOSIGNAL);
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
    char stuck[LOOP_NAME_MAX] = "";
    struct timeval limit = {.tv_sec = ANSWER_SECONDS};
    auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (find_address(verb, dir, &a, &size, err) < 0)
        return -(int)err->code;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0)
        return err_sys(err, errno, "cannot make a socket");
    bool is_served = connect(fd, (struct sockaddr *)&a, size) == 0 && is_ours(fd);
    ssize_t n = is_served ? recv(fd, stuck, sizeof stuck, 0) : -1;
    if (is_served && n < 0 && errno == EAGAIN)
        return err_set(err, ERR_TIMEOUT, "`cistern %s` of '%s' does not answer", verb, dir);
    if (n > 0 && stuck[0])
        return err_set(err, ERR_TIMEOUT, "`cistern %s` of '%s': its thread '%.*s' has been stuck for ten minutes", verb,
                       dir, LOOP_NAME_MAX, stuck);
    return n > 0 ? 0 : err_set(err, ERR_NOT_FOUND, "no `cistern %s` runs for '%s'", verb, dir);
}
