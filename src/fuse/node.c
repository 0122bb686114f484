/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include <fcntl.h>

double node_attr_timeout(struct session *s, const struct table_node *n)
{
    return n->flags & NODE_DIRTY ? 0 : s->name_timeout;
}

/* The kernel refuses a read lease while the file is open or mapped for writing. That is the only way to learn when a
 * mapping of a closed file can no longer store. */
static bool is_writable_somewhere(struct session *s, uint64_t id)
{
    auto_fd fd = lower_open(s, id, O_RDONLY | O_NONBLOCK | O_NOATIME);
    return fd < 0 || fcntl(fd, F_SETLEASE, F_RDLCK) < 0; /* closing gives the lease back */
}

void node_settle(struct session *s, uint64_t id)
{
    struct table_node n;
    /* Locked: else an open in between could lose its mark. */
    inode_lock(&s->inode_locks, id);
    if (nodes_get(s->table, id, &n) == 0 && n.flags & NODE_DIRTY && n.writers == 0 && !is_writable_somewhere(s, id))
        nodes_set_flag(s->table, id, NODE_DIRTY, false);
    inode_unlock(&s->inode_locks, id);
}

int node_entry_of_fd(struct request *rq, int fd, struct fuse_entry_param *ret)
{
    struct session *s = rq->session;
    struct table_handle h;
    struct table_node n;
    uint64_t id;
    struct stat now;
    int r = lower_identify(s, fd, &now, &h);
    if (r == 0)
        r = nodes_count(s->table, rq->intent, &rq->reuse, &h, &id, &n);
    if (r < 0)
        return r;
    /* Read again after the flag was cleared: attributes that the kernel caches for long must not be older. */
    if (n.writers == 0 && n.flags & NODE_DIRTY) {
        node_settle(s, id);
        if (nodes_get(s->table, id, &n) < 0 || fstat(fd, &now) < 0)
            return -ESTALE;
    }
    group_show(s, fd, &now);
    *ret = (struct fuse_entry_param){
        .ino = id, .attr = now, .attr_timeout = node_attr_timeout(s, &n), .entry_timeout = s->name_timeout};
    return 0;
}

int node_entry(struct request *rq, int parent, const char *name, struct fuse_entry_param *ret)
{
    auto_fd fd = openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : node_entry_of_fd(rq, fd, ret);
}

static void release_held(struct session *s, uint64_t id)
{
    if (node_fds_is_shared(&s->fds, id) && s->control_fd >= 0) {
        struct wire_msg m = wire_msg(WIRE_RELEASE, s->table->head->volume_id);
        m.number = id;
        /* If it fails, the keeper holds one descriptor too many until the unmount. */
        (void)!wire_send(s->control_fd, &m, NULL, ERR_IGNORED);
    }
    node_fds_close(&s->fds, id, NODE_FD_HELD);
}

void node_forget(struct request *rq, uint64_t id, uint64_t n)
{
    struct session *s = rq->session;
    struct table_node was;
    nodes_forget(s->table, rq->intent, id, n, &was);
    if (was.lookups > 0)
        return;
    backing_close(s, rq->intent, was.backing);
    if (was.flags & NODE_GONE)
        release_held(s, id);
    node_fds_close(&s->fds, id, NODE_FD_READ);
    node_fds_close(&s->fds, id, NODE_FD_WRITE);
}

/* The keeper gets it before anything relies on it: the message waits in the socket even if we die at once. */
void node_hold_fd(struct session *s, uint64_t id, int fd, bool with_keeper)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return;
    int held = node_fds_put(&s->fds, id, NODE_FD_HELD, own);
    if (with_keeper && !node_fds_share(&s->fds, id) && s->control_fd >= 0) {
        struct wire_msg m = wire_msg(WIRE_HOLD, s->table->head->volume_id);
        struct wire_fds fds = {{held, -1, -1}};
        m.number = id;
        (void)!wire_send(s->control_fd, &m, &fds, ERR_IGNORED); /* the file is lost only if we die too */
    }
    nodes_set_flag(s->table, id, NODE_GONE, true);
}

uint64_t node_hold(struct request *rq, int fd, const struct stat *st, const struct table_handle *h)
{
    struct table_node n;
    bool last = S_ISDIR(st->st_mode) || st->st_nlink <= 1;
    uint64_t id = last ? nodes_find(rq->session->table, h) : 0;
    if (id == 0 || nodes_get(rq->session->table, id, &n) < 0)
        return 0;
    node_hold_fd(rq->session, id, fd, S_ISDIR(st->st_mode) || n.opens > 0);
    return id;
}

void node_unhold(struct session *s, uint64_t id)
{
    if (id == 0)
        return;
    nodes_set_flag(s->table, id, NODE_GONE, false);
    release_held(s, id);
}
