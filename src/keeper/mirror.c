/* SPDX-License-Identifier: Apache-2.0 */
/* A mirror holds a list of volumes with their descriptors. Only its thread changes the list, under the lock. */
#include "mirror.h"
#include "table.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/log.h"
#include "util/thread.h"
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

struct mirror_copy {
    struct list_node in_copies;
    uint64_t node;       /* node id of a held file; 0 for the volume itself: /dev/fuse and memfd */
    uint64_t connection; /* on which it was received */
    char volume_id[KEEPER_ID_MAX];
    struct wire_fds fds;
};

struct mirror {
    char *socket; /* owned; NULL for the default */
    int stop_fd;  /* owned */
    pthread_t thread;
    pthread_mutex_t lock;
    struct list copies; /* under .lock: a volume is listed before its files */
    uint32_t volumes;
    uint64_t connection;   /* only the thread uses it: number of the current connection */
    struct counts counted; /* counts of dropped volumes, minus the initial counts of the present ones */
    int keeper_fd;         /* borrowed: the connection to a keeper that has all copies, or -1 */
};

static bool is_of(const struct mirror_copy *c, const char *volume_id)
{
    return strcmp(c->volume_id, volume_id) == 0;
}

static void count(struct mirror *m, const struct mirror_copy *c, int sign)
{
    if (c->node != 0)
        return;
    struct counts now = table_counts(c->fds.fd[1]);
    counts_sum(&m->counted, &now, sign);
}

static void add(struct mirror *m, const struct wire_msg *msg, struct wire_fds *own_fds)
{
    struct mirror_copy *c = xcalloc(1, sizeof(*c));
    c->node = msg->type == WIRE_HOLD ? msg->number : 0;
    c->connection = m->connection;
    memcpy(c->volume_id, msg->volume_id, sizeof(c->volume_id));
    c->fds = *own_fds;
    *own_fds = WIRE_NO_FDS;
    count(m, c, -1);
    list_add(&m->copies, &c->in_copies);
    m->volumes += c->node == 0;
}

/* node 0: the volume and all its files. */
static void drop(struct mirror *m, const char *volume_id, uint64_t node)
{
    struct mirror_copy *c;
    list_foreach (&m->copies, c, in_copies) {
        if (!is_of(c, volume_id) || (node != 0 && c->node != node))
            continue;
        list_remove(&m->copies, &c->in_copies);
        m->volumes -= c->node == 0;
        count(m, c, 1);
        wire_fds_close(&c->fds);
        free(c);
    }
}

static void set_keeper(struct mirror *m, int sock)
{
    auto_lock(&m->lock);
    m->keeper_fd = sock;
}

/* Under the lock. The thread may not have seen yet that the keeper died. */
static bool is_connected(const struct mirror *m)
{
    struct pollfd p = {.fd = m->keeper_fd};
    return m->keeper_fd >= 0 && poll(&p, 1, 0) == 0;
}

/* Handles one message of the keeper. */
static int handle_message(struct mirror *m, int sock, int timeout_ms, bool *ret_synced, struct err *err)
{
    struct wire_msg msg;
    auto_fds fds = WIRE_NO_FDS;
    int r = wire_recv_within(sock, timeout_ms, &msg, &fds, err);
    if (r < 0)
        return r;
    pthread_mutex_lock(&m->lock);
    if (msg.type == WIRE_GIVE)
        drop(m, msg.volume_id, 0); /* our duplicates may be older */
    if (msg.type == WIRE_GIVE || msg.type == WIRE_HOLD)
        add(m, &msg, &fds);
    if (msg.type == WIRE_RELEASE)
        drop(m, msg.volume_id, msg.number);
    if (msg.type == WIRE_DROP)
        drop(m, msg.volume_id, 0);
    pthread_mutex_unlock(&m->lock);
    *ret_synced = msg.type == WIRE_SYNCED;
    if (msg.type != WIRE_DROP)
        return 0;
    struct wire_msg dropped = wire_msg(WIRE_DROP, msg.volume_id);
    return wire_send(sock, &dropped, NULL, err);
}

/* Sends a restarted keeper every copy that it did not send itself on this connection. */
static int send_missing(struct mirror *m, int sock, struct err *err)
{
    int r = 0;
    const struct mirror_copy *c;
    list_foreach (&m->copies, c, in_copies) {
        struct wire_msg msg = wire_msg(c->node ? WIRE_HOLD : WIRE_GIVE, c->volume_id);
        msg.number = c->node;
        if (r == 0 && c->connection != m->connection)
            r = wire_send(sock, &msg, &c->fds, err);
    }
    struct wire_msg synced = wire_msg(WIRE_SYNCED, NULL);
    return r < 0 ? r : wire_send(sock, &synced, NULL, err);
}

/* From here on a keeper that dies loses no mount. */
static void log_connected(int sock)
{
    struct ucred keeper = {0};
    socklen_t len = sizeof keeper;
    (void)getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &keeper, &len);
    log_event(LOG_INFO, "keeper connected", "pid", log_u64((uint64_t)keeper.pid), NULL);
}

/* One connection, from connect to hang-up. */
static void converse(struct mirror *m)
{
    struct err err;
    auto_fd sock = -1;
    struct wire_msg hello = wire_msg(WIRE_MIRROR, NULL);
    if (wire_connect(m->socket, &sock, &err) < 0 || wire_send(sock, &hello, NULL, &err) < 0)
        return;
    m->connection++;
    bool synced = false;
    int r = 0;
    while (r == 0 && !synced)
        r = handle_message(m, sock, 5000, &synced, &err);
    if (r == 0)
        r = send_missing(m, sock, &err);
    if (r == 0) {
        set_keeper(m, sock);
        log_connected(sock);
    }
    while (r == 0) {
        struct pollfd p[2] = {{.fd = sock, .events = POLLIN}, {.fd = m->stop_fd, .events = POLLIN}};
        if (poll(p, 2, -1) > 0 && p[1].revents)
            break;
        if (p[0].revents)
            r = handle_message(m, sock, 0, &synced, &err);
    }
    set_keeper(m, -1);
}

static void *mirror_thread(void *arg)
{
    struct mirror *m = arg;
    pthread_setname_np(pthread_self(), "mirror");
    for (unsigned attempt = 0;; attempt++) {
        struct pollfd p = {.fd = m->stop_fd, .events = POLLIN};
        uint64_t wait_ns = attempt == 0 ? 0 : clock_doubled_ns(attempt, 20 * NS_PER_MS, NS_PER_SECOND);
        if (poll(&p, 1, (int)(wait_ns / NS_PER_MS)) > 0)
            return NULL;
        uint64_t began = clock_now_ns();
        converse(m);
        if (clock_now_ns() - began > NS_PER_SECOND)
            attempt = 0;
    }
}

int mirror_start(const char *socket, struct mirror **ret, struct err *err)
{
    struct mirror *m = xcalloc(1, sizeof(*m));
    m->socket = socket ? str_dup(str_of(socket)) : NULL;
    pthread_mutex_init(&m->lock, NULL);
    m->keeper_fd = -1;
    m->stop_fd = eventfd(0, EFD_CLOEXEC);
    int e = m->stop_fd < 0 ? errno : thread_start(&m->thread, mirror_thread, m);
    if (e != 0) {
        fd_close(&m->stop_fd);
        free(m->socket);
        free(m);
        return err_sys(err, e, "cannot start the keeper's mirror");
    }
    *ret = m;
    return 0;
}

void mirror_stop(struct mirror *m)
{
    if (!m)
        return;
    (void)!eventfd_write(m->stop_fd, 1);
    pthread_join(m->thread, NULL);
    struct mirror_copy *c;
    while ((c = list_pop(&m->copies, struct mirror_copy, in_copies)) != NULL) {
        wire_fds_close(&c->fds);
        free(c);
    }
    close(m->stop_fd);
    pthread_mutex_destroy(&m->lock);
    free(m->socket);
    free(m);
}

uint32_t mirror_volumes(struct mirror *m)
{
    auto_lock(&m->lock);
    return m->volumes;
}

void mirror_counts(struct mirror *m, struct counts *ret)
{
    auto_lock(&m->lock);
    *ret = m->counted;
    const struct mirror_copy *c;
    list_foreach (&m->copies, c, in_copies) {
        struct counts now = c->node == 0 ? table_counts(c->fds.fd[1]) : (struct counts){0};
        counts_sum(ret, &now, 1);
    }
}

bool mirror_holds(struct mirror *m, const char *volume_id)
{
    auto_lock(&m->lock);
    const struct mirror_copy *c;
    list_foreach (&m->copies, c, in_copies)
        if (is_of(c, volume_id))
            return is_connected(m);
    return false;
}

bool mirror_is_connected(struct mirror *m)
{
    auto_lock(&m->lock);
    return is_connected(m);
}
