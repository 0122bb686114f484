/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper's loop: one thread, one poll(2), tables of fixed size. */
#include "private.h"
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

#define MOUNT_PROGRAM "cistern-mount"

enum { ALONE_LEAVE_MS = 2000, TAKE_OVER_MS = 5000, LISTEN_MS = 1000, ENDING_POLL_MS = 100 };
enum { ASKS = 10, ASK_MS = 20 };
enum { POLLED_MAX = 2 + KEEPER_CLIENTS_MAX + 2 * KEEPER_VOLUMES_MAX };

#define MIRROR_WAIT_NS (20 * NS_PER_SECOND) /* Kubernetes kills a pod 30 s after SIGTERM */

/* ---- clients ----------------------------------------------------------------------------------------------------- */

static void close_client(struct keeper *k, int c)
{
    close(k->clients[c].fd);
    k->clients[c] = (struct keeper_client){.fd = -1};
    keeper_foreach_mount (k, v) {
        if (v->client == c)
            v->client = NO_CLIENT;
        keeper_mount_on_dropped(k, v, c);
    }
}

static bool give_all(struct keeper *k, int sock)
{
    keeper_foreach_mount (k, v)
        if (v->state < MOUNT_UNMOUNTING && keeper_send_mount(k, v, sock, ERR_IGNORED) < 0)
            return false;
    struct wire_msg synced = wire_msg(WIRE_SYNCED, NULL);
    return wire_send(sock, &synced, NULL, ERR_IGNORED) == 0;
}

/* They are reaped by keeper_mount_on_exit(), which starts others if we go on. */
static void kill_processes(struct keeper *k)
{
    keeper_foreach_mount (k, v) {
        process_kill(v);
        process_await(v);
        keeper_mount_drain(k, v);
    }
}

/* A keeper that cannot read our tables would lose our mounts. Keepers of the first version do not report which tables
 * they read. */
static int check_taker(struct keeper *k, const struct wire_msg *ask, struct err *err)
{
    uint64_t reads = ask->number ? ask->number : TABLE_OLDEST;
    keeper_foreach_mount (k, v)
        if (v->head && v->head->version > reads)
            return err_set(err, ERR_UNSUPPORTED,
                           "the node table of volume '%s' is of version %u, but the new keeper reads %u", v->id,
                           v->head->version, (unsigned)reads);
    return 0;
}

/* Has no timeout: a new keeper that is stopped for any time may still continue, and two keepers must not serve one
 * mount. It hangs up when it listens, or because it died. The first versions hang up shortly before they listen. */
static bool is_replaced(const struct keeper *k, int c)
{
    struct pollfd p = {.fd = k->clients[c].fd, .events = POLLIN};
    struct stat st;
    while (poll(&p, 1, -1) < 0)
        continue;
    uint64_t end = clock_now_ns() + LISTEN_MS * NS_PER_MS;
    do
        if (stat(k->options->socket, &st) == 0 && st.st_ino != k->socket_ino)
            return true;
    while (poll(NULL, 0, 10) == 0 && clock_now_ns() < end);
    return false;
}

static int send_status(struct keeper *k, int c, const char *id, struct err *err)
{
    int r = 0;
    unsigned rows = 0;
    keeper_foreach_mount (k, v) {
        if (r < 0 || (*id && strcmp(id, v->id) != 0))
            continue;
        struct wire_msg m = wire_msg(WIRE_ROW, v->id);
        keeper_mount_status(v, &m.body.status);
        r = wire_send(k->clients[c].fd, &m, NULL, err);
        rows++;
    }
    if (r == 0 && *id && rows == 0)
        return err_set(err, ERR_NOT_FOUND, "volume '%s' is not mounted", id);
    return r;
}

static void start_adopted(struct keeper *k)
{
    keeper_foreach_mount (k, v) {
        if (v->state != MOUNT_ADOPTED)
            continue;
        keeper_show_to_mirrors(k, v); /* also to the mirror that sent it: another one may have had it */
        keeper_event(k, "session taken over", v, NULL);
        keeper_mount_start(k, v);
    }
}

/* A volume from a mirror or an older keeper. */
static void on_given(struct keeper *k, const struct wire_msg *m, struct wire_fds *fds, int c)
{
    struct err err;
    struct keeper_mount *v = keeper_find(k, m->volume_id);
    /* A mirror keeps a table that is too new for us: the next keeper may read it. */
    int r = m->type == WIRE_GIVE && !v ? keeper_mount_adopt(k, m->volume_id, fds, &err) : 0;
    if (r < 0 && k->options->event)
        k->options->event("session not taken over", m->volume_id, &err);
    if (r < 0 && r != -ERR_UNSUPPORTED && c != NO_CLIENT) {
        struct wire_msg drop = wire_msg(WIRE_DROP, m->volume_id);
        (void)!wire_send(k->clients[c].fd, &drop, NULL, &err);
    }
    if (m->type == WIRE_HOLD && v && v->state == MOUNT_ADOPTED && fds->fd[0] >= 0)
        keeper_hold_file(k, v, m->number, take_fd(&fds->fd[0]));
    if (m->type == WIRE_SYNCED)
        start_adopted(k);
}

static void on_mirror(struct keeper *k, int c)
{
    k->clients[c].is_mirror = true;
    if (!give_all(k, k->clients[c].fd))
        close_client(k, c);
}

static void on_request(struct keeper *k, int c, const struct wire_msg *m, struct wire_fds *fds)
{
    struct err err;
    struct keeper_mount *v = keeper_find(k, m->volume_id);
    int client = c, r = 0;
    switch ((enum wire_type)m->type) {
    case WIRE_MOUNT:
        r = keeper_mount_create(k, m, c, &err);
        client = r < 0 ? c : NO_CLIENT;
        break;
    case WIRE_UNMOUNT:
        if (v) {
            client = NO_CLIENT;
            keeper_mount_end(k, v, m->number, c);
        }
        break;
    case WIRE_STATUS:
        r = send_status(k, c, m->volume_id, &err);
        break;
    case WIRE_MIRROR:
        client = NO_CLIENT;
        on_mirror(k, c);
        break;
    case WIRE_TAKE_OVER:
        r = check_taker(k, m, &err);
        client = r < 0 ? c : NO_CLIENT;
        if (r == 0) {
            kill_processes(k); /* before the new keeper starts its own */
            k->stop = give_all(k, k->clients[c].fd) && is_replaced(k, c);
        }
        break;
    case WIRE_DROP:
        client = NO_CLIENT;
        if (v)
            keeper_mount_on_dropped(k, v, c);
        break;
    case WIRE_GIVE:
    case WIRE_HOLD:
    case WIRE_SYNCED:
        client = NO_CLIENT;
        if (k->clients[c].is_mirror)
            on_given(k, m, fds, c);
        break;
    default:
        r = err_set(&err, ERR_INVALID, "the keeper does not know message type %u", m->type);
    }
    keeper_answer(k, &client, r, &err);
}

static void on_client(struct keeper *k, int c)
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
        keeper_answer(k, &client, r, &err);
    close_client(k, c);
}

static void on_connect(struct keeper *k)
{
    struct timeval timeout = {.tv_sec = 2};
    bool pause;
    auto_fd fd = acceptor_next(&k->listener, SOCK_CLOEXEC, &pause);
    k->listen_ns = pause ? clock_now_ns() + ACCEPT_PAUSE_MS * NS_PER_MS : 0;
    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    for (int c = 0; c < KEEPER_CLIENTS_MAX; c++) {
        if (k->clients[c].fd < 0) {
            k->clients[c] = (struct keeper_client){.fd = take_fd(&fd)};
            return;
        }
    }
    struct err err;
    int r = err_set(&err, ERR_AGAIN, "the keeper has %d clients already", KEEPER_CLIENTS_MAX);
    struct wire_msg m = wire_answer(r, &err);
    (void)!wire_send(fd, &m, NULL, &err);
}

/* ---- signals ----------------------------------------------------------------------------------------------------- */

/* The second signal ends the wait. */
static void on_signal(struct keeper *k)
{
    struct signalfd_siginfo s;
    uint64_t now = clock_now_ns();
    while (read(k->signal_fd, &s, sizeof(s)) == sizeof(s)) {
        if (k->options->alone && k->mounts[0].state != MOUNT_FREE)
            keeper_mount_end(k, &k->mounts[0], ALONE_LEAVE_MS, NO_CLIENT);
        else
            k->end_ns = k->end_ns ? now : now + MIRROR_WAIT_NS;
    }
}

static bool has_mounts(struct keeper *k)
{
    keeper_foreach_mount (k, v)
        return true;
    return false;
}

/* Without a driver that has their descriptors, our mounts would end with us: give a restarting driver time to
 * connect. */
static bool may_end(struct keeper *k)
{
    bool is_held = !has_mounts(k);
    for (int c = 0; c < KEEPER_CLIENTS_MAX; c++)
        is_held |= k->clients[c].fd >= 0 && k->clients[c].is_mirror;
    return is_held || clock_now_ns() >= k->end_ns;
}

/* ---- start ------------------------------------------------------------------------------------------------------- */

/* The connection outlives the call: the other keeper goes on if it ends before we listen. ERR_NOT_FOUND: it died. */
static int ask_for_mounts(struct keeper *k, int *ret_sock, struct err *err)
{
    auto_fd sock = -1;
    struct wire_msg ask = wire_msg(WIRE_TAKE_OVER, NULL);
    struct err no_keeper;
    ask.number = TABLE_VERSION;
    if (wire_connect(k->options->socket, &sock, &no_keeper) < 0)
        return no_keeper.sys == EAGAIN ? err_copy(err, &no_keeper) : 0; /* its queue is full: it is frozen */
    (void)!wire_send(sock, &ask, NULL, err);                            /* if it fails, the keeper has hung up */
    int r = 0;
    while (r == 0) {
        struct wire_msg m;
        auto_fds fds = WIRE_NO_FDS;
        r = wire_recv_within(sock, TAKE_OVER_MS, &m, &fds, err);
        if (r < 0)
            break;
        if (m.type == WIRE_SYNCED) {
            *ret_sock = take_fd(&sock);
            return 0;
        }
        if (m.type == WIRE_DONE) /* the other keeper continues */
            r = wire_answer_to_err(&m, err);
        on_given(k, &m, &fds, NO_CLIENT);
    }
    return r;
}

/* A keeper that is killed while it starts a mount process seems to listen, until the child has become that program. */
static int take_over(struct keeper *k, int *ret_sock, struct err *err)
{
    int r, asks = 0;
    do
        r = ask_for_mounts(k, ret_sock, err);
    while (r == -ERR_NOT_FOUND && !has_mounts(k) && ++asks < ASKS && poll(NULL, 0, ASK_MS) == 0);
    return r < 0 ? err_wrap(err, "taking over from the keeper at '%s'", k->options->socket) : 0;
}

/* Bound under another name, then renamed, so that the socket always exists. */
static int listen_at(struct keeper *k, struct err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const char *path = k->options->socket;
    struct stat st;
    int n = snprintf(a.sun_path, sizeof(a.sun_path), "%s.%d", path, getpid());
    if (n >= (int)sizeof(a.sun_path))
        return err_set(err, ERR_INVALID, "the socket path '%s' is too long", path);
    auto_fd fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, errno, "cannot create a socket");
    unlink(a.sun_path);
    mode_t mask = umask(0177);
    int r = bind(fd, (struct sockaddr *)&a, sizeof(a));
    umask(mask);
    if (r < 0 || listen(fd, KEEPER_CLIENTS_MAX) < 0 || stat(a.sun_path, &st) < 0 || rename(a.sun_path, path) < 0) {
        err_sys(err, errno, "cannot listen at '%s'", path);
        unlink(a.sun_path);
        return err_advise(err, CIS_SOCKET_LISTEN);
    }
    acceptor_init(&k->listener, take_fd(&fd));
    k->socket_ino = st.st_ino;
    return 0;
}

static int catch_signals(struct keeper *k, struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* ignored, it would reap our children for us */
    k->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return k->signal_fd < 0 ? err_sys(err, errno, "cannot create a signalfd") : 0;
}

static int mount_alone(struct keeper *k, struct err *err)
{
    struct wire_msg ask;
    int r = wire_mount_of(k->options->alone, &ask, err);
    return r < 0 ? r : keeper_mount_create(k, &ask, NO_CLIENT, err);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static nfds_t watch(struct keeper *k, struct pollfd *p, int *timeout_ms)
{
    nfds_t n = 0;
    uint64_t now = clock_now_ns();
    *timeout_ms = k->end_ns ? ENDING_POLL_MS : now < k->listen_ns ? ACCEPT_PAUSE_MS : -1;
    p[n++] = (struct pollfd){.fd = k->signal_fd, .events = POLLIN};
    p[n++] = (struct pollfd){.fd = now < k->listen_ns ? -1 : k->listener.fd, .events = POLLIN};
    for (int c = 0; c < KEEPER_CLIENTS_MAX; c++)
        p[n++] = (struct pollfd){.fd = k->clients[c].fd, .events = POLLIN};
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++) {
        const struct keeper_mount *v = &k->mounts[i];
        int wait_ms = v->state == MOUNT_FREE ? -1 : keeper_mount_wait_ms(v, now);
        if (wait_ms >= 0 && (*timeout_ms < 0 || wait_ms < *timeout_ms))
            *timeout_ms = wait_ms;
        p[n++] = (struct pollfd){.fd = v->state == MOUNT_FREE ? -1 : v->control_fd, .events = POLLIN};
        p[n++] = (struct pollfd){.fd = v->state == MOUNT_FREE ? -1 : v->process_fd, .events = POLLIN};
    }
    return n;
}

/* poll(2) of the entries that have a descriptor: more entries than RLIMIT_NOFILE are an error. */
static bool poll_open(struct pollfd *p, nfds_t count, int timeout_ms)
{
    static struct pollfd open[POLLED_MAX];
    static nfds_t place[POLLED_MAX];
    nfds_t n = 0;
    for (nfds_t i = 0; i < count; i++)
        if (p[i].fd >= 0) {
            place[n] = i;
            open[n++] = p[i];
        }
    bool is_done = poll(open, n, timeout_ms) >= 0;
    for (nfds_t i = 0; is_done && i < n; i++)
        p[place[i]].revents = open[i].revents;
    return is_done;
}

static void poll_once(struct keeper *k)
{
    static struct pollfd p[POLLED_MAX];
    const struct pollfd *of_mounts = p + 2 + KEEPER_CLIENTS_MAX;
    int timeout_ms;
    nfds_t n = watch(k, p, &timeout_ms);
    if (!poll_open(p, n, timeout_ms))
        return;
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++)
        if (of_mounts[2 * i].revents)
            keeper_mount_on_message(k, &k->mounts[i]);
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++)
        if (of_mounts[2 * i + 1].revents && k->mounts[i].process_fd == of_mounts[2 * i + 1].fd)
            keeper_mount_on_exit(k, &k->mounts[i]);
    if (p[0].revents)
        on_signal(k);
    for (int c = 0; c < KEEPER_CLIENTS_MAX; c++)
        if (p[2 + c].revents && k->clients[c].fd == p[2 + c].fd)
            on_client(k, c);
    if (p[1].revents)
        on_connect(k);
    uint64_t now = clock_now_ns();
    keeper_foreach_mount (k, v)
        keeper_mount_on_timer(k, v, now);
}

static void report_ready(struct keeper *k)
{
    if (k->options->ready_fd >= 0)
        (void)!write(k->options->ready_fd, "", 1);
}

static int begin(struct keeper *k, struct err *err)
{
    auto_fd other = -1;
    int r = catch_signals(k, err);
    fd_limit_raise();
    if (r == 0 && k->options->take_over)
        r = take_over(k, &other, err);
    if (r == 0 && k->options->socket)
        r = listen_at(k, err);
    if (r == 0 && k->options->alone)
        r = mount_alone(k, err);
    if (r == 0)
        start_adopted(k);
    return r;
}

/* The failure of `alone` is the result; clients get theirs in a reply. */
static int run_alone(struct keeper *k, struct err *err)
{
    bool said = false;
    while (!k->stop) {
        poll_once(k);
        if (!said && k->mounts[0].state == MOUNT_SERVING) {
            said = true;
            report_ready(k);
        }
    }
    return k->failure.code ? err_copy(err, &k->failure) : 0;
}

int keeper_run(const struct keeper_options *o, struct err *err)
{
    static struct keeper k; /* half a MiB is too much for the stack */
    char self[KEEPER_PATH_MAX];
    k = (struct keeper){.options = o, .program = o->program, .listener = {-1, -1}, .signal_fd = -1, .free_file = 0};
    if (!k.program) {
        int r = program_path(MOUNT_PROGRAM, self, sizeof(self), err);
        if (r < 0)
            return r;
        k.program = self;
    }
    for (int c = 0; c < KEEPER_CLIENTS_MAX; c++)
        k.clients[c].fd = -1;
    for (int i = 0; i < KEEPER_FILES_MAX; i++)
        k.files[i].next = i + 1 < KEEPER_FILES_MAX ? i + 1 : NO_FILE;
    int r = begin(&k, err);
    if (r < 0)
        return r;
    if (o->alone)
        return run_alone(&k, err);
    report_ready(&k);
    while (!k.stop && !(k.end_ns && may_end(&k)))
        poll_once(&k);
    return 0;
}
