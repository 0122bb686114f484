/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

enum { NEWER_MAX = 1024 }; /* bytes by which a newer peer's body may be longer */
enum { CONNECT_SECONDS = 10 };

void wire_fds_close(struct wire_fds *f)
{
    int kept_errno = errno;
    for (size_t i = 0; i < WIRE_FDS_MAX; i++) {
        fd_close(&f->fd[i]);
    }
    errno = kept_errno;
}

struct wire_msg wire_msg(enum wire_type type, const char *volume_id)
{
    struct wire_msg m;
    memset(&m, 0, sizeof(m)); /* padding too: it is sent */
    m.version = WIRE_OLDEST;
    m.type = (uint16_t)type;
    memccpy(m.volume_id, volume_id ? volume_id : "", '\0', sizeof(m.volume_id) - 1);
    return m;
}

/* Only the bytes of the type: a HOLD is sent before the reply to an unlink, and must be cheap. */
static size_t wire_size(const struct wire_msg *m)
{
    size_t head = offsetof(struct wire_msg, body);
    switch ((enum wire_type)m->type) {
    case WIRE_MOUNT:
        return offsetof(struct wire_msg, body.context) + sizeof(m->body.context);
    case WIRE_ROW:
        return head + sizeof(m->body.status);
    case WIRE_DONE:
    case WIRE_READY:
        return m->code ? head + sizeof(m->body.failure) : head;
    default:
        return head;
    }
}

/* The body of the oldest version: no field of it may be missing. */
static size_t oldest_size(const struct wire_msg *m)
{
    if (m->type == WIRE_MOUNT)
        return offsetof(struct wire_msg, body.context);
    return m->type == WIRE_ROW ? offsetof(struct wire_msg, body.status.opens) + sizeof(uint64_t) : wire_size(m);
}

int wire_send(int sock, const struct wire_msg *m, const struct wire_fds *fds, struct err *err)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)m, .iov_len = wire_size(m)};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * WIRE_FDS_MAX)];
    } control = {0};
    struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1};
    size_t n = 0;
    while (fds && n < WIRE_FDS_MAX && fds->fd[n] >= 0)
        n++;
    if (n > 0) {
        h.msg_control = control.bytes;
        h.msg_controllen = CMSG_SPACE(sizeof(int) * n);
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * n);
        memcpy(CMSG_DATA(c), fds->fd, sizeof(int) * n);
    }
    ssize_t sent;
    do
        sent = sendmsg(sock, &h, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return err_set(err, ERR_AGAIN, "the peer does not read its messages");
    if (sent < 0)
        return err_sys(err, errno, "cannot send a message");
    return 0;
}

static void take_fds(struct msghdr *h, struct wire_fds *fds)
{
    size_t n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (n < WIRE_FDS_MAX)
                fds->fd[n++] = fd;
            else
                close(fd);
        }
    }
}

/* Terminates text from a peer before it is used. */
static void terminate(struct wire_msg *m)
{
    m->volume_id[sizeof(m->volume_id) - 1] = '\0';
    if (m->type == WIRE_MOUNT) {
        m->body.config.data[KEEPER_PATH_MAX - 1] = '\0';
        m->body.config.mount_point[KEEPER_PATH_MAX - 1] = '\0';
        m->body.context[KEEPER_CONTEXT_MAX - 1] = '\0';
    } else if (m->type == WIRE_ROW) {
        m->body.status.volume_id[KEEPER_ID_MAX - 1] = '\0';
        m->body.status.data[KEEPER_PATH_MAX - 1] = '\0';
        m->body.status.mount_point[KEEPER_PATH_MAX - 1] = '\0';
    } else {
        m->body.failure.text[ERR_TEXT_MAX - 1] = '\0';
        m->body.failure.advice[ERR_ADVICE_MAX - 1] = '\0';
    }
}

int wire_recv(int sock, struct wire_msg *ret, struct wire_fds *ret_fds, struct err *err)
{
    auto_fds fds = WIRE_NO_FDS;
    struct wire_msg m;
    char beyond[NEWER_MAX];
    memset(&m, 0, sizeof(m));
    struct iovec parts[] = {{&m, sizeof(m)}, {beyond, sizeof(beyond)}};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * WIRE_FDS_MAX)];
    } control;
    struct msghdr h = {.msg_iov = parts,
                       .msg_iovlen = countof(parts),
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof(control.bytes)};
    ssize_t got;
    do
        got = recvmsg(sock, &h, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return err_set(err, ERR_AGAIN, "no message yet");
    if (got == 0 || (got < 0 && errno == ECONNRESET))
        return err_set(err, ERR_NOT_FOUND, "the peer hung up");
    if (got < 0)
        return err_sys(err, errno, "cannot receive a message");
    take_fds(&h, &fds);
    if (m.version < WIRE_OLDEST || m.version > WIRE_VERSION)
        return err_set(err, ERR_CORRUPT, "the peer uses protocol version %u; this program supports %d to %d", m.version,
                       WIRE_OLDEST, WIRE_VERSION);
    if ((size_t)got < oldest_size(&m) || (h.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return err_set(err, ERR_CORRUPT, "a message of type %u has %zd bytes", m.type, got);
    terminate(&m);
    *ret = m;
    *ret_fds = fds;
    fds = WIRE_NO_FDS;
    return 0;
}

int wire_recv_within(int sock, int timeout_ms, struct wire_msg *ret, struct wire_fds *ret_fds, struct err *err)
{
    struct pollfd p = {.fd = sock, .events = POLLIN};
    int n;
    do
        n = poll(&p, 1, timeout_ms);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_sys(err, errno, "cannot wait for a message");
    if (n == 0)
        return err_set(err, ERR_TIMEOUT, "no answer within %d ms", timeout_ms);
    return wire_recv(sock, ret, ret_fds, err);
}

struct wire_msg wire_answer(int code, const struct err *err)
{
    struct wire_msg m = wire_msg(WIRE_DONE, NULL);
    if (code == 0)
        return m;
    m.code = (int32_t)err->code;
    m.body.failure.id = err->id;
    m.body.failure.sys = err->sys;
    memcpy(m.body.failure.text, err->text, ERR_TEXT_MAX);
    memcpy(m.body.failure.advice, err->advice, ERR_ADVICE_MAX);
    return m;
}

int wire_answer_to_err(const struct wire_msg *m, struct err *err)
{
    if (m->code == 0)
        return 0;
    bool known = m->code > 0 && m->code <= ERR_ABSENT;
    err_set(err, known ? (enum err_code)m->code : ERR_INTERNAL, "%s", m->body.failure.text);
    err->sys = m->body.failure.sys;
    return err_advise_text(err, m->body.failure.id, "%s", m->body.failure.advice);
}

int wire_connect(const char *socket_path, int *ret_fd, struct err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const char *path = socket_path ? socket_path : KEEPER_SOCKET;
    if (strlen(path) >= sizeof(a.sun_path))
        return err_set(err, ERR_INVALID, "the keeper's socket path '%s' has more than %zu bytes", path,
                       sizeof(a.sun_path) - 1);
    memcpy(a.sun_path, path, strlen(path) + 1);
    auto_fd fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(err, errno, "cannot create a socket");
    struct timeval timeout = {.tv_sec = CONNECT_SECONDS}; /* the queue of a keeper that is frozen gets full */
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        err_sys(err, errno, "cannot reach the keeper at '%s'", path);
        err->code = ERR_AGAIN;
        return err_advise(err, CIS_KEEPER_UNREACHABLE);
    }
    *ret_fd = take_fd(&fd);
    return 0;
}
