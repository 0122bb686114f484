/* SPDX-License-Identifier: Apache-2.0 */
/* One mount of the keeper, from mount(2) until its last descriptor is closed. */
#include "private.h"
#include "util/clock.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { START_MS = 25000, LEAVE_MS = 3000, DROP_MS = 2000, SHORT_LIFE_MS = 1000 };
enum { GIVE_UP_MS = 30000 }; /* documented in docs/design/004-mounts.md */

/* Between the attempts to unmount a busy mount, each of which reads the table of all mounts. The pause doubles, so the
 * last one is at most as long as the mount was busy. */
#define UNMOUNT_RETRY_NS (20 * NS_PER_MS)
#define UNMOUNT_RETRY_MAX_NS (500 * NS_PER_MS)

static const uint8_t allowed[] = {
    [MOUNT_FREE] = 1 << MOUNT_ADOPTED | 1 << MOUNT_STARTING,
    [MOUNT_ADOPTED] = 1 << MOUNT_SERVING | 1 << MOUNT_WAITING | 1 << MOUNT_UNMOUNTING,
    [MOUNT_STARTING] = 1 << MOUNT_SERVING | 1 << MOUNT_UNMOUNTING,
    [MOUNT_SERVING] = 1 << MOUNT_WAITING | 1 << MOUNT_UNMOUNTING,
    [MOUNT_WAITING] = 1 << MOUNT_SERVING | 1 << MOUNT_WAITING | 1 << MOUNT_UNMOUNTING | 1 << MOUNT_DROPPING,
    [MOUNT_UNMOUNTING] = 1 << MOUNT_DROPPING,
    [MOUNT_DROPPING] = 1 << MOUNT_FREE,
};

static void keeper_mount_become(struct keeper_mount *v, enum keeper_mount_state next)
{
    if (!(allowed[v->state] & 1 << next))
        abort();
    v->state = next;
}

struct keeper_mount *keeper_find(struct keeper *k, const char *id)
{
    keeper_foreach_mount (k, v)
        if (strcmp(v->id, id) == 0)
            return v;
    return NULL;
}

static struct keeper_mount *free_slot(struct keeper *k)
{
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++)
        if (k->mounts[i].state == MOUNT_FREE)
            return &k->mounts[i];
    return NULL;
}

static int set_up(struct keeper *k, struct keeper_mount **ret, const char *id, struct err *err)
{
    struct keeper_mount *v = free_slot(k);
    if (!v)
        return err_set(err, ERR_NO_SPACE, "the keeper holds %d volumes already", KEEPER_VOLUMES_MAX);
    *v = (struct keeper_mount){.fuse_fd = -1,
                               .memfd = -1,
                               .control_fd = -1,
                               .connection_fd = -1,
                               .process_fd = -1,
                               .client = NO_CLIENT,
                               .first_file = NO_FILE};
    memccpy(v->id, id, '\0', sizeof(v->id) - 1);
    *ret = v;
    return 0;
}

/* ---- the mount process ------------------------------------------------------------------------------------------- */

static int spawn(struct keeper *k, struct keeper_mount *v, int control, struct err *err)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    char program[KEEPER_PATH_MAX], id[KEEPER_ID_MAX];
    snprintf(program, sizeof(program), "%s", k->program);
    snprintf(id, sizeof(id), "%s", v->id);
    char *argv[] = {program, id, NULL};
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, control, 3);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setpgroup(&attr, 0); /* Ctrl-C on a terminal is for the keeper alone */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    pid_t pid;
    int r = posix_spawn(&pid, program, &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    if (r != 0)
        return err_sys(err, r, "cannot start '%s'", program);
    v->process_fd = pidfd_open(pid, 0); /* a child keeps its pid until we reap it */
    if (v->process_fd >= 0) {
        v->pid = pid;
        return 0;
    }
    err_sys(err, errno, "cannot watch the process of '%s'", program);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return -(int)err->code;
}

/* The root directory is opened for each process and not held: the keeper must not pin the lower disk. */
static int process_start(struct keeper *k, struct keeper_mount *v, struct err *err)
{
    int pair[2];
    struct timeval timeout = {.tv_sec = 2};
    auto_fd root = open(v->head->config.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_sys(err, errno, "cannot open '%s'", v->head->config.data);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, errno, "cannot create a socket pair");
    fd_close(&v->control_fd);
    v->control_fd = pair[0];
    auto_fd theirs = pair[1];
    setsockopt(v->control_fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    int r = spawn(k, v, theirs, err);
    if (r < 0)
        return r;
    struct wire_msg start = wire_msg(WIRE_START, v->id);
    struct wire_msg synced = wire_msg(WIRE_SYNCED, v->id);
    struct wire_fds fds = {{v->fuse_fd, v->memfd, root}};
    r = wire_send(v->control_fd, &start, &fds, err);
    if (r == 0)
        r = keeper_send_files(k, v, v->control_fd, err);
    return r < 0 ? r : wire_send(v->control_fd, &synced, NULL, err);
}

void process_await(const struct keeper_mount *v)
{
    siginfo_t ignored;
    while (v->process_fd >= 0 && waitid(P_PIDFD, (id_t)v->process_fd, &ignored, WEXITED | WNOWAIT) < 0 &&
           errno == EINTR)
        continue;
}

/* False: it still runs. */
static bool process_reap(struct keeper_mount *v, siginfo_t *ret)
{
    *ret = (siginfo_t){0};
    int r;
    do
        r = waitid(P_PIDFD, (id_t)v->process_fd, ret, WEXITED | WNOHANG);
    while (r < 0 && errno == EINTR);
    if (r == 0 && ret->si_pid == 0)
        return false;
    fd_close(&v->process_fd);
    v->pid = 0;
    return true;
}

/* Restarts at once, because users wait, but with backoff after several failures. A SIGKILL from outside is not counted
 * as a failure. */
static void wait_to_start(struct keeper_mount *v, uint64_t now, bool failed)
{
    bool short_life = now - v->started_ns < SHORT_LIFE_MS * NS_PER_MS;
    v->failures = failed && (short_life || !v->ready) ? v->failures + 1 : 0;
    if (v->failures <= 1)
        v->failing_ns = now;
    v->due_ns = now + (v->failures < 3 ? 0 : clock_doubled_ns(v->failures - 3, 10 * NS_PER_MS, 5 * NS_PER_SECOND));
    v->ready = false;
    keeper_mount_become(v, MOUNT_WAITING);
}

/* ---- mounting ---------------------------------------------------------------------------------------------------- */

static int mount_new(struct keeper *k, struct keeper_mount *v, const struct wire_msg *ask, struct err *err)
{
    int r = mountpoint_check(k, &ask->body.config, err);
    if (r < 0)
        return r;
    v->fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (v->fuse_fd < 0) {
        err_sys(err, errno, "cannot open /dev/fuse");
        return err_advise(err, CIS_FUSE_DEVICE_MISSING);
    }
    r = table_create(ask, &v->memfd, err);
    if (r == 0)
        r = table_head_map(v->memfd, &v->head, err);
    return r < 0 ? r : mountpoint_mount(v, ask, err);
}

static int same_mount(const struct keeper_mount *v, const struct wire_msg *ask, struct err *err)
{
    if (v->head && memcmp(&v->head->config, &ask->body.config, sizeof(ask->body.config)) == 0 &&
        v->head->context_hash == table_context_hash(ask))
        return 0;
    return err_fail(err, ERR_EXISTS, CIS_MOUNT_EXISTS, "volume '%s' is mounted with other options", v->id);
}

int keeper_mount_create(struct keeper *k, const struct wire_msg *ask, int client, struct err *err)
{
    struct keeper_mount *v = keeper_find(k, ask->volume_id);
    if (v && v->state >= MOUNT_UNMOUNTING)
        return err_set(err, ERR_BUSY, "volume '%s' is being unmounted", v->id);
    if (v) {
        int r = same_mount(v, ask, err);
        if (r == 0 && v->state == MOUNT_STARTING)
            return err_set(err, ERR_AGAIN, "volume '%s' is being mounted", v->id);
        keeper_answer(k, &client, r, err);
        return 0;
    }
    int r = set_up(k, &v, ask->volume_id, err);
    if (r == 0)
        r = mount_new(k, v, ask, err);
    if (r < 0) {
        if (v)
            keeper_mount_close(k, v);
        return r;
    }
    keeper_mount_become(v, MOUNT_STARTING);
    v->client = client;
    v->end_ns = clock_now_ns() + START_MS * NS_PER_MS;
    keeper_mount_start(k, v);
    return 0;
}

int keeper_mount_adopt(struct keeper *k, const char *id, struct wire_fds *own_fds, struct err *err)
{
    struct pollfd p = {.fd = own_fds->fd[0], .events = POLLIN};
    struct keeper_mount *v;
    if (own_fds->fd[0] < 0 || own_fds->fd[1] < 0)
        return err_set(err, ERR_CORRUPT, "volume '%s': the take-over has no descriptors for it", id);
    if (poll(&p, 1, 0) > 0 && p.revents & POLLERR)
        return err_set(err, ERR_NOT_FOUND, "volume '%s' was unmounted before the take-over", id);
    int r = set_up(k, &v, id, err);
    if (r < 0)
        return r;
    r = table_head_map(own_fds->fd[1], &v->head, err);
    if (r < 0)
        return r;
    v->fuse_fd = take_fd(&own_fds->fd[0]);
    v->memfd = take_fd(&own_fds->fd[1]);
    keeper_mount_become(v, MOUNT_ADOPTED);
    return 0;
}

/* ---- unmounting -------------------------------------------------------------------------------------------------- */

static void drop(struct keeper *k, struct keeper_mount *v)
{
    struct wire_msg m = wire_msg(WIRE_DROP, v->id);
    keeper_mount_become(v, MOUNT_DROPPING);
    table_close_backings(v->head, v->memfd, v->fuse_fd);
    keeper_mount_close(k, v);
    v->pending = 0;
    for (int c = 0; c < KEEPER_CLIENTS_MAX; c++)
        if (k->clients[c].fd >= 0 && k->clients[c].is_mirror)
            v->pending |= UINT64_C(1) << c;
    v->end_ns = clock_now_ns() + DROP_MS * NS_PER_MS;
    keeper_send_to_mirrors(k, &m, NULL);
    keeper_mount_on_dropped(k, v, NO_CLIENT);
}

void keeper_mount_on_dropped(struct keeper *k, struct keeper_mount *v, int client)
{
    if (v->state != MOUNT_DROPPING)
        return;
    if (client != NO_CLIENT)
        v->pending &= ~(UINT64_C(1) << client);
    if (v->pending)
        return;
    keeper_answer(k, &v->client, 0, NULL);
    keeper_mount_become(v, MOUNT_FREE);
    if (k->options->alone)
        k->stop = true;
}

static void try_unmount(struct keeper_mount *v, uint64_t now)
{
    const char *at = v->head->config.mount_point;
    bool last = now >= v->end_ns;
    v->due_ns = min_u64(v->end_ns, now + clock_doubled_ns(v->attempts++, UNMOUNT_RETRY_NS, UNMOUNT_RETRY_MAX_NS));
    /* A mount of another program stays. Below it the volume is dead once its session has ended. */
    if (!mountpoint_is_ours(v) || umount2(at, UMOUNT_NOFOLLOW) == 0 || errno == EINVAL || errno == ENOENT ||
        (last && umount2(at, UMOUNT_NOFOLLOW | MNT_DETACH) == 0) || last) {
        v->unmounted = true;
        v->end_ns = now + (last ? 0 : LEAVE_MS * NS_PER_MS);
        v->due_ns = v->end_ns;
    }
}

/* After umount the session ends, and its process with it. If a user or another mount keeps it, the process is killed
 * and all descriptors are closed: then the kernel ends the session. */
static void finish_unmount(struct keeper *k, struct keeper_mount *v, uint64_t now)
{
    if (!v->unmounted)
        try_unmount(v, now);
    if (!v->unmounted)
        return;
    if (now >= v->end_ns) {
        process_kill(v);
        v->due_ns = UINT64_MAX; /* its end wakes the keeper */
    }
    if (v->process_fd < 0)
        drop(k, v);
}

void keeper_mount_end(struct keeper *k, struct keeper_mount *v, uint64_t timeout_ms, int client)
{
    uint64_t now = clock_now_ns();
    keeper_answer(k, &v->client, 0, NULL);
    v->client = client;
    if (v->state >= MOUNT_UNMOUNTING)
        return; /* the newest client gets the result */
    keeper_mount_become(v, MOUNT_UNMOUNTING);
    if (v->process_fd < 0)
        mountpoint_abort(v); /* without a process umount2() might never return */
    v->end_ns = now + timeout_ms * NS_PER_MS;
    v->attempts = 0;
    finish_unmount(k, v, now);
}

/* No user has seen this mount. */
static void fail_start(struct keeper *k, struct keeper_mount *v, struct err *err)
{
    keeper_answer(k, &v->client, -1, err);
    k->failure = *err;
    keeper_event(k, "mount failed", v, err);
    keeper_mount_end(k, v, 0, NO_CLIENT);
}

/* Users wait in calls that no signal interrupts, so they get an error. The dead mount stays: the driver sees by it that
 * the mount is lost. `alone` has no driver, so it is unmounted. */
static void give_up(struct keeper *k, struct keeper_mount *v)
{
    struct err err = {0};
    err_set(&err, ERR_INTERNAL, "%u mount processes failed in %d s: the connection is aborted", v->failures,
            GIVE_UP_MS / 1000);
    keeper_event(k, "mount given up", v, &err);
    if (!k->options->alone) {
        mountpoint_abort(v); /* without fusectl the session ends with the last descriptor */
        drop(k, v);
        return;
    }
    k->failure = err;
    keeper_mount_end(k, v, 0, NO_CLIENT);
}

void keeper_mount_start(struct keeper *k, struct keeper_mount *v)
{
    struct err err = {0};
    uint64_t now = clock_now_ns();
    v->ready = false;
    v->started_ns = now;
    int r = process_start(k, v, &err);
    if (r < 0 && v->state == MOUNT_STARTING) {
        fail_start(k, v, &err);
        return;
    }
    if (r == 0) {
        if (v->state != MOUNT_STARTING)
            keeper_mount_become(v, MOUNT_SERVING);
        return;
    }
    keeper_event(k, "mount process could not be started", v, &err);
    process_kill(v);
    wait_to_start(v, now, true);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void on_ready(struct keeper *k, struct keeper_mount *v, const struct wire_msg *m)
{
    struct err err = {0};
    int r = wire_answer_to_err(m, &err);
    v->ready = r == 0;
    if (v->ready)
        watch_begin(v, clock_now_ns());
    if (v->state != MOUNT_STARTING) {
        keeper_event(k, r == 0 ? "mount process took over" : "mount process gave up", v, r == 0 ? NULL : &err);
        return;
    }
    if (r < 0) {
        fail_start(k, v, &err);
        return;
    }
    keeper_mount_become(v, MOUNT_SERVING);
    keeper_show_to_mirrors(k, v); /* first: this keeper may die right after its reply */
    keeper_answer(k, &v->client, 0, NULL);
}

/* False: no message is waiting. */
static bool take_message(struct keeper *k, struct keeper_mount *v)
{
    struct wire_msg m;
    auto_fds fds = WIRE_NO_FDS;
    struct pollfd p = {.fd = v->control_fd, .events = POLLIN};
    if (v->control_fd < 0 || poll(&p, 1, 0) <= 0)
        return false;
    if (wire_recv(v->control_fd, &m, &fds, ERR_IGNORED) < 0) {
        fd_close(&v->control_fd); /* it is ending; its pidfd says how */
        return false;
    }
    const struct wire_fds held = fds;
    if (m.type == WIRE_READY)
        on_ready(k, v, &m);
    if (m.type == WIRE_HOLD && fds.fd[0] >= 0 && keeper_hold_file(k, v, m.number, take_fd(&fds.fd[0])))
        keeper_send_to_mirrors(k, &m, &held);
    if (m.type == WIRE_RELEASE && keeper_release_file(k, v, m.number))
        keeper_send_to_mirrors(k, &m, NULL);
    return true;
}

/* A pod that opens and unlinks files without end must not keep the keeper from its other mounts. */
void keeper_mount_on_message(struct keeper *k, struct keeper_mount *v)
{
    for (unsigned i = 0; i < MESSAGES_AT_ONCE && take_message(k, v); i++)
        ;
}

void keeper_mount_drain(struct keeper *k, struct keeper_mount *v)
{
    while (take_message(k, v))
        ;
}

void keeper_mount_on_exit(struct keeper *k, struct keeper_mount *v)
{
    struct err err = {0};
    siginfo_t how;
    uint64_t now = clock_now_ns();
    if (!process_reap(v, &how))
        return;
    bool exited = how.si_code == CLD_EXITED;
    bool unmounted = exited && how.si_status == 0, lost = exited && how.si_status == WIRE_EXIT_LOST;
    keeper_mount_drain(k, v);
    bool killed = v->ready && !exited && how.si_status == SIGKILL;
    if (v->state == MOUNT_UNMOUNTING) {
        finish_unmount(k, v, now);
        return;
    }
    if (exited)
        err_set(&err, ERR_INTERNAL, "exit status %d", how.si_status);
    else /* SIGKILL is from outside, or from a take-over that the other keeper did not finish */
        err_set(&err, how.si_status == SIGKILL ? ERR_AGAIN : ERR_INTERNAL, "mount process killed by signal %d",
                how.si_status);
    if (v->state == MOUNT_STARTING) {
        fail_start(k, v, &err);
    } else if (unmounted || lost) {
        keeper_event(k, unmounted ? "unmounted from outside" : "session lost", v, unmounted ? NULL : &err);
        keeper_mount_end(k, v, 0, NO_CLIENT);
    } else {
        keeper_event(k, "mount process died", v, &err);
        v->restarts++;
        wait_to_start(v, now, !killed);
        keeper_mount_on_timer(k, v, now);
    }
}

/* UINT64_MAX: nothing to do. */
static uint64_t due_at(const struct keeper_mount *v)
{
    switch (v->state) {
    case MOUNT_STARTING:
    case MOUNT_DROPPING:
        return v->end_ns;
    case MOUNT_SERVING:
        return v->ready ? v->look_ns : v->started_ns + START_MS * NS_PER_MS;
    case MOUNT_WAITING:
        return v->process_fd >= 0 ? UINT64_MAX : v->due_ns;
    case MOUNT_UNMOUNTING:
        return v->due_ns;
    default:
        return UINT64_MAX;
    }
}

static void on_due(struct keeper *k, struct keeper_mount *v, uint64_t now)
{
    struct err err = {0};
    if (v->state == MOUNT_STARTING) {
        err_set(&err, ERR_TIMEOUT, "the mount process was not ready within %d s", START_MS / 1000);
        fail_start(k, v, &err);
    } else if (v->state == MOUNT_SERVING && v->ready) {
        watch_look(k, v, now);
    } else if (v->state == MOUNT_SERVING) {
        v->started_ns = now;
        process_kill(v); /* keeper_mount_on_exit continues */
    } else if (v->state == MOUNT_WAITING) {
        bool has_failed = v->failures > 1 && now >= v->failing_ns + GIVE_UP_MS * NS_PER_MS;
        has_failed ? give_up(k, v) : keeper_mount_start(k, v);
    } else if (v->state == MOUNT_UNMOUNTING) {
        finish_unmount(k, v, now);
    } else {
        v->pending = 0; /* do not wait longer for a mirror that hangs */
        keeper_mount_on_dropped(k, v, NO_CLIENT);
    }
}

void keeper_mount_on_timer(struct keeper *k, struct keeper_mount *v, uint64_t now)
{
    if (now >= due_at(v))
        on_due(k, v, now);
}

int keeper_mount_wait_ms(const struct keeper_mount *v, uint64_t now)
{
    uint64_t at = due_at(v);
    if (at == UINT64_MAX)
        return -1;
    return at <= now ? 0 : (int)((at - now) / NS_PER_MS) + 1;
}

void keeper_mount_status(const struct keeper_mount *v, struct keeper_status *ret)
{
    memset(ret, 0, sizeof(*ret));
    memcpy(ret->volume_id, v->id, sizeof(ret->volume_id));
    ret->state = v->state >= MOUNT_UNMOUNTING ? KEEPER_LEAVING : v->ready ? KEEPER_SERVING : KEEPER_RESTARTING;
    ret->pid = v->pid;
    ret->restarts = v->restarts;
    if (!v->head)
        return;
    const struct wire_config *c = &v->head->config;
    memcpy(ret->data, c->data, sizeof(ret->data));
    memcpy(ret->mount_point, c->mount_point, sizeof(ret->mount_point));
    ret->read_only = c->read_only;
    ret->has_group = c->has_group;
    ret->group = c->group;
    ret->passthrough = v->head->ready == 2;
    ret->nodes = v->head->nodes;
    ret->opens = v->head->opens;
}
