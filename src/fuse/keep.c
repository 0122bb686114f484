/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper's loop: one thread, one poll(2), tables of fixed size. */
#include "keep.h"
#include "util/clock.h"
#include "util/file.h"
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>

#define MOUNT_PROGRAM "cistern-mount"

enum { ALONE_LEAVE_MS = 2000, TAKE_OVER_MS = 5000 };

struct kept *keep_find(struct keep *k, const char *id)
{
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++)
        if (k->volumes[i].state != KEPT_FREE && strcmp(k->volumes[i].id, id) == 0)
            return &k->volumes[i];
    return NULL;
}

struct kept *keep_free_slot(struct keep *k)
{
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++)
        if (k->volumes[i].state == KEPT_FREE)
            return &k->volumes[i];
    return NULL;
}

void keep_event(const struct keep *k, const char *what, const struct kept *v, const struct err *why)
{
    if (k->options->event)
        k->options->event(what, v->id, why);
}

/* ---- clients ----------------------------------------------------------------------------------------------------- */

static void hang_up(struct keep *k, int c)
{
    close(k->clients[c].fd);
    k->clients[c] = (struct client){.fd = -1};
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++) {
        struct kept *v = &k->volumes[i];
        if (v->client == c)
            v->client = NO_CLIENT;
        kept_on_dropped(k, v, c);
    }
}

void keep_answer(struct keep *k, int *client, int code, const struct err *err)
{
    struct err ignored;
    int c = *client;
    *client = NO_CLIENT;
    if (c == NO_CLIENT || k->clients[c].fd < 0)
        return;
    struct wire_msg m = wire_answer(code, err);
    (void)!wire_send(k->clients[c].fd, &m, NULL, &ignored); /* who does not wait for an answer gets none */
}

void keep_tell_mirrors(struct keep *k, const struct wire_msg *m, const struct wire_fds *fds)
{
    struct err ignored;
    for (int c = 0; c < KEEP_CLIENTS; c++)
        if (k->clients[c].fd >= 0 && k->clients[c].is_mirror && wire_send(k->clients[c].fd, m, fds, &ignored) < 0)
            hang_up(k, c); /* it missed something: it will connect and get everything again */
}

static int give_all(struct keep *k, int sock, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX && r == 0; i++)
        if (k->volumes[i].state != KEPT_FREE && k->volumes[i].state < KEPT_LEAVING)
            r = keep_give(k, &k->volumes[i], sock, err);
    struct wire_msg synced = wire_msg(WIRE_SYNCED, NULL);
    return r < 0 ? r : wire_send(sock, &synced, NULL, err);
}

static void kill_processes(struct keep *k)
{
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++) {
        struct kept *v = &k->volumes[i];
        int status;
        if (v->pid <= 0)
            continue;
        kill(v->pid, SIGKILL);
        waitpid(v->pid, &status, 0);
        v->pid = 0;
        kept_on_control(k, v);
    }
}

/* A keeper that cannot read our tables would lose our mounts. Those of the first version do not say what they read. */
static int check_taker(const struct keep *k, const struct wire_msg *ask, struct err *err)
{
    uint64_t reads = ask->number ? ask->number : TABLE_OLDEST;
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++) {
        const struct kept *v = &k->volumes[i];
        if (v->state != KEPT_FREE && v->head && v->head->version > reads)
            return err_set(err, ERR_UNSUPPORTED, "the table of volume '%s' is of version %u, and that keeper reads %u",
                           v->id, v->head->version, (unsigned)reads);
    }
    return 0;
}

/* Our mount processes end before the other keeper starts its own. */
static void hand_over(struct keep *k, int c)
{
    struct err err;
    kill_processes(k);
    if (give_all(k, k->clients[c].fd, &err) == 0)
        k->stop = true;
    else
        for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++)
            if (k->volumes[i].state == KEPT_SERVING)
                kept_start(k, &k->volumes[i]);
}

static int answer_status(struct keep *k, int c, const char *id, struct err *err)
{
    int r = 0;
    unsigned rows = 0;
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX && r == 0; i++) {
        const struct kept *v = &k->volumes[i];
        if (v->state == KEPT_FREE || (*id && strcmp(id, v->id) != 0))
            continue;
        struct wire_msg m = wire_msg(WIRE_ROW, v->id);
        kept_row(v, &m.body.status);
        r = wire_send(k->clients[c].fd, &m, NULL, err);
        rows++;
    }
    if (r == 0 && *id && rows == 0)
        return err_set(err, ERR_NOT_FOUND, "volume '%s' is not mounted", id);
    return r;
}

static void start_adopted(struct keep *k)
{
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++) {
        struct kept *v = &k->volumes[i];
        if (v->state != KEPT_ADOPTED)
            continue;
        struct wire_msg give = wire_msg(WIRE_GIVE, v->id);
        struct wire_fds fds = {{v->fuse_fd, v->memfd, -1}};
        keep_tell_mirrors(k, &give, &fds); /* also the one that gave it: it may have been another's */
        keep_event(k, "session taken over", v, NULL);
        kept_start(k, v);
    }
}

/* A gift from a mirror, or from an older keeper. */
static void on_gift(struct keep *k, const struct wire_msg *m, struct wire_fds *fds, int c)
{
    struct err err;
    struct kept *v = keep_find(k, m->volume_id);
    /* A mirror keeps what is only too new for us: the next keeper may read it. */
    int r = m->type == WIRE_GIVE && !v ? kept_adopt(k, m->volume_id, fds, &err) : 0;
    if (r < 0 && k->options->event)
        k->options->event("session not taken over", m->volume_id, &err);
    if (r < 0 && r != -ERR_UNSUPPORTED && c != NO_CLIENT) {
        struct wire_msg drop = wire_msg(WIRE_DROP, m->volume_id);
        (void)!wire_send(k->clients[c].fd, &drop, NULL, &err);
    }
    if (m->type == WIRE_HOLD && v && v->state == KEPT_ADOPTED && fds->fd[0] >= 0)
        kept_hold(k, v, m->number, take_fd(&fds->fd[0]));
    if (m->type == WIRE_SYNCED)
        start_adopted(k);
}

static void on_mirror(struct keep *k, int c)
{
    struct err err;
    k->clients[c].is_mirror = true;
    if (give_all(k, k->clients[c].fd, &err) < 0)
        hang_up(k, c);
}

static void on_request(struct keep *k, int c, const struct wire_msg *m, struct wire_fds *fds)
{
    struct err err;
    struct kept *v = keep_find(k, m->volume_id);
    int client = c, r = 0;
    switch ((enum wire_type)m->type) {
    case WIRE_MOUNT:
        r = kept_mount(k, m, c, &err);
        client = r < 0 ? c : NO_CLIENT;
        break;
    case WIRE_UNMOUNT:
        if (v) {
            client = NO_CLIENT;
            kept_unmount(k, v, m->number, c);
        }
        break;
    case WIRE_STATUS:
        r = answer_status(k, c, m->volume_id, &err);
        break;
    case WIRE_MIRROR:
        client = NO_CLIENT;
        on_mirror(k, c);
        break;
    case WIRE_TAKE_OVER:
        r = check_taker(k, m, &err);
        client = r < 0 ? c : NO_CLIENT;
        if (r == 0)
            hand_over(k, c);
        break;
    case WIRE_DROP:
        client = NO_CLIENT;
        if (v)
            kept_on_dropped(k, v, c);
        break;
    case WIRE_GIVE:
    case WIRE_HOLD:
    case WIRE_SYNCED:
        client = NO_CLIENT;
        if (k->clients[c].is_mirror)
            on_gift(k, m, fds, c);
        break;
    default:
        r = err_set(&err, ERR_INVALID, "the keeper does not know messages of type %u", m->type);
    }
    keep_answer(k, &client, r, &err);
}

static void on_client(struct keep *k, int c)
{
    struct wire_msg m;
    struct err err;
    auto_fds fds = WIRE_NO_FDS;
    int r = wire_recv(k->clients[c].fd, &m, &fds, &err);
    if (r == 0) {
        on_request(k, c, &m, &fds);
        return;
    }
    int client = c;
    if (err.code == ERR_CORRUPT)
        keep_answer(k, &client, r, &err);
    hang_up(k, c);
}

static void on_connect(struct keep *k)
{
    struct timeval patience = {.tv_sec = 2};
    auto_fd fd = accept4(k->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    for (int c = 0; c < KEEP_CLIENTS; c++) {
        if (k->clients[c].fd < 0) {
            k->clients[c] = (struct client){.fd = take_fd(&fd)};
            return;
        }
    }
    struct err err;
    int r = err_set(&err, ERR_AGAIN, "the keeper speaks with %d others already", KEEP_CLIENTS);
    struct wire_msg m = wire_answer(r, &err);
    (void)!wire_send(fd, &m, NULL, &err);
}

/* ---- signals ----------------------------------------------------------------------------------------------------- */

static void reap(struct keep *k)
{
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++) {
        int status;
        struct kept *v = &k->volumes[i];
        if (v->pid > 0 && waitpid(v->pid, &status, WNOHANG) == v->pid)
            kept_on_exit(k, v, status);
    }
}

static void on_signal(struct keep *k)
{
    struct signalfd_siginfo s;
    while (read(k->signal_fd, &s, sizeof(s)) == sizeof(s)) {
        if (s.ssi_signo == SIGCHLD)
            reap(k);
        else if (k->options->alone && k->volumes[0].state != KEPT_FREE)
            kept_unmount(k, &k->volumes[0], ALONE_LEAVE_MS, NO_CLIENT);
        else
            k->stop = true;
    }
}

/* ---- start ------------------------------------------------------------------------------------------------------- */

static int take_over(struct keep *k, struct err *err)
{
    auto_fd sock = -1;
    struct wire_msg ask = wire_msg(WIRE_TAKE_OVER, NULL);
    struct err nobody;
    ask.number = TABLE_VERSION;
    if (wire_connect(k->options->socket, &sock, &nobody) < 0)
        return 0;
    int r = wire_send(sock, &ask, NULL, err);
    while (r == 0) {
        struct wire_msg m;
        auto_fds fds = WIRE_NO_FDS;
        r = wire_recv_within(sock, TAKE_OVER_MS, &m, &fds, err);
        if (r < 0)
            break;
        if (m.type == WIRE_SYNCED)
            return 0;
        if (m.type == WIRE_DONE) /* it goes on serving */
            r = wire_answer_to_err(&m, err);
        on_gift(k, &m, &fds, NO_CLIENT);
    }
    return err_wrap(err, "taking over from the keeper at '%s'", k->options->socket);
}

/* Under another name first, so that there is never a moment without a keeper's socket. */
static int listen_at(struct keep *k, struct err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const char *path = k->options->socket;
    int n = snprintf(a.sun_path, sizeof(a.sun_path), "%s.%d", path, getpid());
    if (n >= (int)sizeof(a.sun_path))
        return err_set(err, ERR_INVALID, "the socket's path '%s' is too long", path);
    k->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (k->listen_fd < 0)
        return err_sys(err, errno, "cannot make a socket");
    unlink(a.sun_path);
    mode_t mask = umask(0177);
    int r = bind(k->listen_fd, (struct sockaddr *)&a, sizeof(a));
    umask(mask);
    if (r < 0 || listen(k->listen_fd, KEEP_CLIENTS) < 0 || rename(a.sun_path, path) < 0) {
        err_sys(err, errno, "cannot listen at '%s'", path);
        unlink(a.sun_path);
        return err_advise(err, 3107, "its folder must exist and be ours");
    }
    return 0;
}

static int catch_signals(struct keep *k, struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    k->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return k->signal_fd < 0 ? err_sys(err, errno, "cannot make a signalfd") : 0;
}

static int mount_alone(struct keep *k, struct err *err)
{
    const struct keeper_mount *m = k->options->alone;
    struct wire_msg ask = wire_msg(WIRE_MOUNT, m->volume_id);
    int r = keeper_config(m, &ask.body.config, err);
    return r < 0 ? r : kept_mount(k, &ask, NO_CLIENT, err);
}

/* It is installed beside whoever runs us. */
static int program_beside(char *ret, size_t room, struct err *err)
{
    ssize_t n = readlink("/proc/self/exe", ret, room - 1);
    if (n < 0)
        return err_sys(err, errno, "cannot find our own program");
    ret[n] = '\0';
    char *slash = strrchr(ret, '/');
    size_t at = slash ? (size_t)(slash + 1 - ret) : 0;
    if (at + sizeof(MOUNT_PROGRAM) > room)
        return err_set(err, ERR_INVALID, "the path of our own program is too long");
    memcpy(ret + at, MOUNT_PROGRAM, sizeof(MOUNT_PROGRAM));
    return 0;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static nfds_t watch(struct keep *k, struct pollfd *p, int *timeout_ms)
{
    nfds_t n = 0;
    uint64_t now = clock_now_ns();
    *timeout_ms = -1;
    p[n++] = (struct pollfd){.fd = k->signal_fd, .events = POLLIN};
    p[n++] = (struct pollfd){.fd = k->listen_fd, .events = POLLIN};
    for (int c = 0; c < KEEP_CLIENTS; c++)
        p[n++] = (struct pollfd){.fd = k->clients[c].fd, .events = POLLIN};
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++) {
        const struct kept *v = &k->volumes[i];
        int wait_ms = v->state == KEPT_FREE ? -1 : kept_wait_ms(v, now);
        if (wait_ms >= 0 && (*timeout_ms < 0 || wait_ms < *timeout_ms))
            *timeout_ms = wait_ms;
        p[n++] = (struct pollfd){.fd = v->state == KEPT_FREE ? -1 : v->control_fd, .events = POLLIN};
    }
    return n;
}

static void turn(struct keep *k)
{
    static struct pollfd p[2 + KEEP_CLIENTS + KEEPER_VOLUMES_MAX];
    int timeout_ms;
    nfds_t n = watch(k, p, &timeout_ms);
    if (poll(p, n, timeout_ms) < 0)
        return;
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++)
        if (p[2 + KEEP_CLIENTS + i].revents)
            kept_on_control(k, &k->volumes[i]);
    if (p[0].revents)
        on_signal(k);
    for (int c = 0; c < KEEP_CLIENTS; c++)
        if (p[2 + c].revents && k->clients[c].fd == p[2 + c].fd)
            on_client(k, c);
    if (p[1].revents)
        on_connect(k);
    uint64_t now = clock_now_ns();
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++)
        if (k->volumes[i].state != KEPT_FREE)
            kept_on_time(k, &k->volumes[i], now);
}

static void say_ready(struct keep *k)
{
    if (k->options->ready_fd >= 0)
        (void)!write(k->options->ready_fd, "", 1);
}

static int begin(struct keep *k, struct err *err)
{
    int r = catch_signals(k, err);
    fd_limit_raise();
    if (r == 0 && k->options->take_over)
        r = take_over(k, err);
    if (r == 0 && k->options->socket)
        r = listen_at(k, err);
    if (r == 0 && k->options->alone)
        r = mount_alone(k, err);
    if (r == 0)
        start_adopted(k);
    return r;
}

/* A mount of our own that failed is our failure; the keeper's clients get theirs as an answer. */
static int run_alone(struct keep *k, struct err *err)
{
    bool said = false;
    while (!k->stop) {
        turn(k);
        if (!said && k->volumes[0].state == KEPT_SERVING) {
            said = true;
            say_ready(k);
        }
    }
    return k->failure.code ? err_copy(err, &k->failure) : 0;
}

int keep_run(const struct keep_options *o, struct err *err)
{
    static struct keep k; /* one a process; 1 MiB of zeroes that cost nothing until they are used */
    char self[KEEPER_PATH_MAX];
    k = (struct keep){.options = o, .program = o->program, .listen_fd = -1, .signal_fd = -1, .free_held = 0};
    if (!k.program) {
        int r = program_beside(self, sizeof(self), err);
        if (r < 0)
            return r;
        k.program = self;
    }
    for (int c = 0; c < KEEP_CLIENTS; c++)
        k.clients[c].fd = -1;
    for (int i = 0; i < KEEP_HELD; i++)
        k.held[i].next = i + 1 < KEEP_HELD ? i + 1 : NO_HELD;
    int r = begin(&k, err);
    if (r < 0)
        return r;
    if (o->alone)
        return run_alone(&k, err);
    say_ready(&k);
    while (!k.stop)
        turn(&k);
    return 0;
}
