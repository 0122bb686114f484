/* SPDX-License-Identifier: Apache-2.0 */
/* One volume at the keeper: from the mount to the last descriptor that is closed. */
#include "keep.h"
#include "util/clock.h"
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { START_MS = 25000, RETRY_UNMOUNT_MS = 20, LEAVE_MS = 3000, DROP_MS = 2000, SHORT_LIFE_MS = 1000 };
enum { GIVE_UP_MS = 30000 }; /* docs/design/004-mounts.md states it */

static const uint8_t allowed[] = {
    [KEPT_FREE] = 1 << KEPT_ADOPTED | 1 << KEPT_STARTING,
    [KEPT_ADOPTED] = 1 << KEPT_SERVING | 1 << KEPT_WAITING | 1 << KEPT_LEAVING,
    [KEPT_STARTING] = 1 << KEPT_SERVING | 1 << KEPT_LEAVING,
    [KEPT_SERVING] = 1 << KEPT_WAITING | 1 << KEPT_LEAVING,
    [KEPT_WAITING] = 1 << KEPT_SERVING | 1 << KEPT_WAITING | 1 << KEPT_LEAVING | 1 << KEPT_DROPPING,
    [KEPT_LEAVING] = 1 << KEPT_DROPPING,
    [KEPT_DROPPING] = 1 << KEPT_FREE,
};

static void kept_become(struct kept *v, enum kept_state next)
{
    if (!(allowed[v->state] & 1 << next))
        abort();
    v->state = next;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void let_all_go(struct keep *k, struct kept *v)
{
    while (v->first_held != NO_HELD) {
        struct held *h = &k->held[v->first_held];
        int next = h->next;
        close_fd(&h->fd);
        h->next = k->free_held;
        k->free_held = v->first_held;
        v->first_held = next;
    }
}

void kept_forget(struct keep *k, struct kept *v)
{
    let_all_go(k, v);
    close_fd(&v->control_fd);
    close_fd(&v->fuse_fd);
    close_fd(&v->memfd);
    table_unpeek(v->head);
    v->head = NULL;
}

static int set_up(struct keep *k, struct kept **ret, const char *id, struct err *err)
{
    struct kept *v = keep_free_slot(k);
    if (!v)
        return err_set(err, ERR_NO_SPACE, "the keeper holds %d volumes already", KEEPER_VOLUMES_MAX);
    *v = (struct kept){.fuse_fd = -1, .memfd = -1, .control_fd = -1, .client = NO_CLIENT, .first_held = NO_HELD};
    memccpy(v->id, id, '\0', sizeof(v->id) - 1);
    *ret = v;
    return 0;
}

/* ---- the mount process ------------------------------------------------------------------------------------------- */

static int spawn(struct keep *k, struct kept *v, int control, struct err *err)
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
    posix_spawnattr_setpgroup(&attr, 0); /* a Ctrl-C on a terminal is for the keeper alone */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    int r = posix_spawn(&v->pid, program, &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    if (r != 0) {
        v->pid = 0;
        return err_sys(err, r, "cannot start '%s'", program);
    }
    return 0;
}

static int send_held(struct keep *k, const struct kept *v, int sock, struct err *err)
{
    int r = 0;
    for (int i = v->first_held; i != NO_HELD && r == 0; i = k->held[i].next) {
        struct wire_msg m = wire_msg(WIRE_HOLD, v->id);
        struct wire_fds fds = {{k->held[i].fd, -1, -1}};
        m.number = k->held[i].node;
        r = wire_send(sock, &m, &fds, err);
    }
    return r;
}

int keep_give(struct keep *k, const struct kept *v, int sock, struct err *err)
{
    struct wire_msg m = wire_msg(WIRE_GIVE, v->id);
    struct wire_fds fds = {{v->fuse_fd, v->memfd, -1}};
    int r = wire_send(sock, &m, &fds, err);
    return r < 0 ? r : send_held(k, v, sock, err);
}

/* The root folder is opened for each process anew and not kept: the keeper must not pin the disk below. */
static int start_process(struct keep *k, struct kept *v, struct err *err)
{
    int pair[2];
    struct timeval patience = {.tv_sec = 2};
    auto_fd root = open(v->head->config.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_sys(err, errno, "cannot open '%s'", v->head->config.data);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, errno, "cannot make a socket pair");
    close_fd(&v->control_fd);
    v->control_fd = pair[0];
    auto_fd theirs = pair[1];
    setsockopt(v->control_fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    int r = spawn(k, v, theirs, err);
    if (r < 0)
        return r;
    struct wire_msg start = wire_msg(WIRE_START, v->id);
    struct wire_msg synced = wire_msg(WIRE_SYNCED, v->id);
    struct wire_fds fds = {{v->fuse_fd, v->memfd, root}};
    r = wire_send(v->control_fd, &start, &fds, err);
    if (r == 0)
        r = send_held(k, v, v->control_fd, err);
    return r < 0 ? r : wire_send(v->control_fd, &synced, NULL, err);
}

/* At once, for users wait; one that fails again and again is tried slower and slower. Somebody who kills it is no
 * failure of its own. */
static void wait_to_start(struct kept *v, uint64_t now, bool failed)
{
    bool short_life = now - v->started_ns < SHORT_LIFE_MS * NS_PER_MS;
    v->failures = failed && (short_life || !v->ready) ? v->failures + 1 : 0;
    if (v->failures <= 1)
        v->failing_ns = now;
    uint64_t wait_ms = v->failures < 3 ? 0 : min_u64(10u << min_u64(v->failures - 3, 9), 5000);
    v->due_ns = now + wait_ms * NS_PER_MS;
    v->ready = false;
    kept_become(v, KEPT_WAITING);
}

/* ---- mounting ---------------------------------------------------------------------------------------------------- */

static int do_mount(const struct kept *v, const struct wire_config *c, struct err *err)
{
    struct stat st;
    char options[160];
    if (stat(c->mount_point, &st) < 0 && errno == ENOTCONN)
        umount2(c->mount_point, MNT_DETACH); /* a mount that lost its keeper and its mirror */
    if (stat(c->mount_point, &st) < 0)
        return err_sys(err, errno, "cannot look at the mount point '%s'", c->mount_point);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID, "the mount point '%s' is not a folder", c->mount_point);
    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions%s", v->fuse_fd,
             c->allow_other ? ",allow_other" : "");
    unsigned long flags = MS_NOSUID | MS_NODEV | (c->read_only ? MS_RDONLY : 0);
    if (mount(v->id, c->mount_point, "fuse.cistern", flags, options) < 0)
        return err_sys(err, errno, "cannot mount on '%s'", c->mount_point);
    return 0;
}

static bool is_below(const char *path, const char *top)
{
    size_t n = strlen(top);
    while (n > 0 && top[n - 1] == '/')
        n--;
    return strncmp(path, top, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* The keeper must never walk through a mount of its own: it would wait for a process that it has to start. */
static int check_paths(struct keep *k, const char *data, const char *mount_point, struct err *err)
{
    if (is_below(data, mount_point))
        return err_set(err, ERR_INVALID, "the folder '%s' lies below its own mount point '%s'", data, mount_point);
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++) {
        const struct kept *v = &k->volumes[i];
        if (v->state == KEPT_FREE || !v->head)
            continue;
        const char *taken = v->head->config.mount_point;
        if (is_below(mount_point, taken) || is_below(data, taken))
            return err_set(err, ERR_BUSY, "'%s' or '%s' lies in the mount of volume '%s' at '%s'", mount_point, data,
                           v->id, taken);
    }
    return 0;
}

/* As words first, then as what they lead to: the first keeps the second from waiting. */
static int check_config(struct keep *k, const struct wire_config *c, struct err *err)
{
    char data[PATH_MAX], at[PATH_MAX];
    int r = check_paths(k, c->data, c->mount_point, err);
    if (r < 0)
        return r;
    if (!realpath(c->data, data))
        return err_sys(err, errno, "cannot find '%s'", c->data);
    if (!realpath(c->mount_point, at) && errno != ENOTCONN)
        return err_sys(err, errno, "cannot find the mount point '%s'", c->mount_point);
    return check_paths(k, data, at, err);
}

static int mount_new(struct keep *k, struct kept *v, const struct wire_config *c, struct err *err)
{
    int r = check_config(k, c, err);
    if (r < 0)
        return r;
    v->fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (v->fuse_fd < 0) {
        err_sys(err, errno, "cannot open /dev/fuse");
        return err_advise(err, 3106, "load the kernel's module fuse, and give this container the device");
    }
    r = table_create(v->id, c, &v->memfd, err);
    if (r == 0)
        r = table_peek(v->memfd, &v->head, err);
    return r < 0 ? r : do_mount(v, c, err);
}

static int same_mount(const struct kept *v, const struct wire_msg *ask, struct err *err)
{
    if (v->head && memcmp(&v->head->config, &ask->body.config, sizeof(ask->body.config)) == 0)
        return 0;
    err_set(err, ERR_EXISTS, "volume '%s' is mounted with other options", v->id);
    return err_advise(err, 3102, "unmount it first: group, folder, mount point and options stay for a mount's life");
}

int kept_mount(struct keep *k, const struct wire_msg *ask, int client, struct err *err)
{
    struct kept *v = keep_find(k, ask->volume_id);
    if (v && v->state >= KEPT_LEAVING)
        return err_set(err, ERR_BUSY, "volume '%s' is being unmounted", v->id);
    if (v) {
        int r = same_mount(v, ask, err);
        if (r == 0 && v->state == KEPT_STARTING)
            return err_set(err, ERR_AGAIN, "volume '%s' is being mounted", v->id);
        keep_answer(k, &client, r, err);
        return 0;
    }
    int r = set_up(k, &v, ask->volume_id, err);
    if (r == 0)
        r = mount_new(k, v, &ask->body.config, err);
    if (r < 0) {
        if (v)
            kept_forget(k, v);
        return r;
    }
    kept_become(v, KEPT_STARTING);
    v->client = client;
    v->end_ns = clock_now_ns() + START_MS * NS_PER_MS;
    kept_start(k, v);
    return 0;
}

int kept_adopt(struct keep *k, const char *id, struct wire_fds *own_fds, struct err *err)
{
    struct pollfd p = {.fd = own_fds->fd[0], .events = POLLIN};
    struct kept *v;
    if (own_fds->fd[0] < 0 || own_fds->fd[1] < 0)
        return err_set(err, ERR_CORRUPT, "a gift of '%s' without its descriptors", id);
    if (poll(&p, 1, 0) > 0 && p.revents & POLLERR)
        return err_set(err, ERR_NOT_FOUND, "volume '%s' was unmounted meanwhile", id);
    int r = set_up(k, &v, id, err);
    if (r < 0)
        return r;
    r = table_peek(own_fds->fd[1], &v->head, err);
    if (r < 0)
        return r;
    v->fuse_fd = take_fd(&own_fds->fd[0]);
    v->memfd = take_fd(&own_fds->fd[1]);
    kept_become(v, KEPT_ADOPTED);
    return 0;
}

/* ---- held descriptors -------------------------------------------------------------------------------------------- */

void kept_hold(struct keep *k, struct kept *v, uint64_t node, int own_fd)
{
    int i = k->free_held;
    if (i == NO_HELD) {
        close(own_fd); /* full: the file is lost only if its mount process dies */
        return;
    }
    k->free_held = k->held[i].next;
    k->held[i] = (struct held){.node = node, .fd = own_fd, .next = v->first_held};
    v->first_held = i;
}

void kept_let_go(struct keep *k, struct kept *v, uint64_t node)
{
    for (int *at = &v->first_held; *at != NO_HELD;) {
        int i = *at;
        if (k->held[i].node != node) {
            at = &k->held[i].next;
            continue;
        }
        close_fd(&k->held[i].fd);
        *at = k->held[i].next;
        k->held[i].next = k->free_held;
        k->free_held = i;
    }
}

/* ---- the way out ------------------------------------------------------------------------------------------------- */

static void drop(struct keep *k, struct kept *v)
{
    struct wire_msg m = wire_msg(WIRE_DROP, v->id);
    kept_become(v, KEPT_DROPPING);
    kept_forget(k, v);
    v->owing = 0;
    for (int c = 0; c < KEEP_CLIENTS; c++)
        if (k->clients[c].fd >= 0 && k->clients[c].is_mirror)
            v->owing |= UINT64_C(1) << c;
    v->end_ns = clock_now_ns() + DROP_MS * NS_PER_MS;
    keep_tell_mirrors(k, &m, NULL);
    kept_on_dropped(k, v, NO_CLIENT);
}

void kept_on_dropped(struct keep *k, struct kept *v, int client)
{
    if (v->state != KEPT_DROPPING)
        return;
    if (client != NO_CLIENT)
        v->owing &= ~(UINT64_C(1) << client);
    if (v->owing)
        return;
    keep_answer(k, &v->client, 0, NULL);
    kept_become(v, KEPT_FREE);
    if (k->options->alone)
        k->stop = true;
}

static void try_unmount(struct kept *v, uint64_t now)
{
    const char *at = v->head->config.mount_point;
    v->due_ns = now + RETRY_UNMOUNT_MS * NS_PER_MS;
    if (v->unmounted)
        return;
    bool last = now >= v->end_ns;
    if (umount2(at, UMOUNT_NOFOLLOW) == 0 || errno == EINVAL || errno == ENOENT ||
        (last && umount2(at, UMOUNT_NOFOLLOW | MNT_DETACH) == 0) || last) {
        v->unmounted = true;
        v->end_ns = now + (last ? 0 : LEAVE_MS * NS_PER_MS);
    }
}

/* Unmounted, the session ends and its process with it. If it does not (a user, another mount of it), the process is
 * killed and all descriptors are closed: then the kernel ends it. */
static void leave(struct keep *k, struct kept *v, uint64_t now)
{
    try_unmount(v, now);
    if (!v->unmounted)
        return;
    if (v->pid > 0 && now >= v->end_ns)
        kill(v->pid, SIGKILL);
    if (v->pid == 0)
        drop(k, v);
}

void kept_unmount(struct keep *k, struct kept *v, uint64_t timeout_ms, int client)
{
    uint64_t now = clock_now_ns();
    keep_answer(k, &v->client, 0, NULL);
    v->client = client;
    if (v->state >= KEPT_LEAVING)
        return; /* the newest asker is told how it ends */
    kept_become(v, KEPT_LEAVING);
    if (v->pid == 0)
        kept_abort(v); /* nobody answers any more: umount2() might wait for ever, and we with it */
    v->end_ns = now + timeout_ms * NS_PER_MS;
    v->due_ns = now;
    leave(k, v, now);
}

/* The mount never became one: nobody used it. */
static void fail_start(struct keep *k, struct kept *v, struct err *err)
{
    keep_answer(k, &v->client, -1, err);
    k->failure = *err;
    keep_event(k, "mount failed", v, err);
    kept_unmount(k, v, 0, NO_CLIENT);
}

/* Its users wait in calls that no signal ends. They are let go with an error, and the dead mount stays where it is: by
 * it the driver sees that the mount is lost. A mount of our own is nobody else's to take away. */
static void give_up(struct keep *k, struct kept *v)
{
    struct err err = {0};
    err_set(&err, ERR_INTERNAL, "%u mount processes failed in %d s: the connection is aborted", v->failures,
            GIVE_UP_MS / 1000);
    keep_event(k, "mount given up", v, &err);
    if (!k->options->alone) {
        kept_abort(v); /* else it ends with the last descriptor */
        drop(k, v);
        return;
    }
    k->failure = err;
    kept_unmount(k, v, 0, NO_CLIENT);
}

void kept_start(struct keep *k, struct kept *v)
{
    struct err err = {0};
    uint64_t now = clock_now_ns();
    v->ready = false;
    v->started_ns = now;
    int r = start_process(k, v, &err);
    if (r < 0 && v->state == KEPT_STARTING) {
        fail_start(k, v, &err);
        return;
    }
    if (r == 0) {
        if (v->state != KEPT_STARTING)
            kept_become(v, KEPT_SERVING);
        return;
    }
    keep_event(k, "mount process could not be started", v, &err);
    if (v->pid > 0)
        kill(v->pid, SIGKILL);
    wait_to_start(v, now, true);
}

/* ---- what happens ------------------------------------------------------------------------------------------------ */

static void on_ready(struct keep *k, struct kept *v, const struct wire_msg *m)
{
    struct err err = {0};
    int r = wire_answer_to_err(m, &err);
    v->ready = r == 0;
    if (v->state != KEPT_STARTING) {
        keep_event(k, r == 0 ? "mount process took over" : "mount process gave up", v, r == 0 ? NULL : &err);
        return;
    }
    if (r < 0) {
        fail_start(k, v, &err);
        return;
    }
    struct wire_msg give = wire_msg(WIRE_GIVE, v->id);
    struct wire_fds fds = {{v->fuse_fd, v->memfd, -1}};
    kept_become(v, KEPT_SERVING);
    keep_tell_mirrors(k, &give, &fds); /* first: the mount that we report may already lose its keeper */
    keep_answer(k, &v->client, 0, NULL);
}

void kept_on_control(struct keep *k, struct kept *v)
{
    for (;;) {
        struct wire_msg m;
        struct err err;
        auto_fds fds = WIRE_NO_FDS;
        struct pollfd p = {.fd = v->control_fd, .events = POLLIN};
        if (v->control_fd < 0 || poll(&p, 1, 0) <= 0)
            return;
        if (wire_recv(v->control_fd, &m, &fds, &err) < 0) {
            close_fd(&v->control_fd); /* it is ending; SIGCHLD says how */
            return;
        }
        if (m.type == WIRE_READY)
            on_ready(k, v, &m);
        if (m.type == WIRE_HOLD && fds.fd[0] >= 0) {
            keep_tell_mirrors(k, &m, &fds);
            kept_hold(k, v, m.number, take_fd(&fds.fd[0]));
        }
        if (m.type == WIRE_LET_GO) {
            keep_tell_mirrors(k, &m, NULL);
            kept_let_go(k, v, m.number);
        }
    }
}

void kept_on_exit(struct keep *k, struct kept *v, int status)
{
    struct err err = {0};
    uint64_t now = clock_now_ns();
    bool ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    bool lost = WIFEXITED(status) && WEXITSTATUS(status) == SESSION_LOST;
    kept_on_control(k, v); /* what it said before it died: descriptors to hold */
    bool killed = v->ready && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    v->pid = 0;
    if (v->state == KEPT_LEAVING) {
        leave(k, v, now);
        return;
    }
    if (WIFSIGNALED(status))
        err_set(&err, ERR_INTERNAL, "killed by signal %d", WTERMSIG(status));
    else
        err_set(&err, ERR_INTERNAL, "exit status %d", WEXITSTATUS(status));
    if (v->state == KEPT_STARTING) {
        fail_start(k, v, &err);
    } else if (ended || lost) {
        keep_event(k, ended ? "unmounted by somebody else" : "session lost", v, ended ? NULL : &err);
        kept_unmount(k, v, 0, NO_CLIENT);
    } else {
        keep_event(k, "mount process died", v, &err);
        v->restarts++;
        wait_to_start(v, now, !killed);
        kept_on_time(k, v, now);
    }
}

/* UINT64_MAX: nothing to do. */
static uint64_t due_at(const struct kept *v)
{
    switch (v->state) {
    case KEPT_STARTING:
    case KEPT_DROPPING:
        return v->end_ns;
    case KEPT_SERVING:
        return v->ready ? UINT64_MAX : v->started_ns + START_MS * NS_PER_MS;
    case KEPT_WAITING:
        return v->pid > 0 ? UINT64_MAX : v->due_ns;
    case KEPT_LEAVING:
        return v->due_ns;
    default:
        return UINT64_MAX;
    }
}

static void on_due(struct keep *k, struct kept *v, uint64_t now)
{
    struct err err = {0};
    if (v->state == KEPT_STARTING) {
        err_set(&err, ERR_TIMEOUT, "the mount process was not ready within %d s", START_MS / 1000);
        fail_start(k, v, &err);
    } else if (v->state == KEPT_SERVING) {
        v->started_ns = now;
        if (v->pid > 0)
            kill(v->pid, SIGKILL); /* kept_on_exit goes on */
    } else if (v->state == KEPT_WAITING) {
        bool has_failed = v->failures > 1 && now >= v->failing_ns + GIVE_UP_MS * NS_PER_MS;
        has_failed ? give_up(k, v) : kept_start(k, v);
    } else if (v->state == KEPT_LEAVING) {
        leave(k, v, now);
    } else {
        v->owing = 0; /* a mirror that does not answer is no reason not to end */
        kept_on_dropped(k, v, NO_CLIENT);
    }
}

void kept_on_time(struct keep *k, struct kept *v, uint64_t now)
{
    if (now >= due_at(v))
        on_due(k, v, now);
}

int kept_wait_ms(const struct kept *v, uint64_t now)
{
    uint64_t at = due_at(v);
    if (at == UINT64_MAX)
        return -1;
    return at <= now ? 0 : (int)((at - now) / NS_PER_MS) + 1;
}

void kept_row(const struct kept *v, struct keeper_status *ret)
{
    memset(ret, 0, sizeof(*ret));
    memcpy(ret->volume_id, v->id, sizeof(ret->volume_id));
    ret->state = v->state >= KEPT_LEAVING ? KEEPER_LEAVING : v->ready ? KEEPER_SERVING : KEEPER_RESTARTING;
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
