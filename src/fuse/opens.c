/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include <fcntl.h>

/* Under the inode's lock. The first open decides the mode of all; if its passthrough fails, they are plain. */
static int choose_mode(struct request *rq, uint64_t id, int fd, const struct table_node *n, int32_t *ret_backing)
{
    struct session *s = rq->session;
    *ret_backing = n->backing;
    if (!s->passthrough || n->flags & NODE_PLAIN || n->backing)
        return 0;
    int r = backing_open(rq, id, fd, ret_backing);
    if (r == 0 || n->opens > 0 || s->config->passthrough == KEEPER_PASSTHROUGH_ON)
        return r;
    *ret_backing = 0;
    nodes_set_flag(s->table, id, NODE_PLAIN, true);
    return 0;
}

static int add_locked(struct request *rq, uint64_t id, int fd, struct fuse_file_info *fi)
{
    struct session *s = rq->session;
    struct table_node n;
    int32_t backing = 0;
    int access = fi->flags & O_ACCMODE;
    int r = nodes_get(s->table, id, &n);
    if (r == 0)
        r = choose_mode(rq, id, fd, &n, &backing);
    if (r < 0)
        return r;
    /* Marked before the reply, after which stores may happen; the kernel drops its cached attributes. A mapping that
     * stores needs O_RDWR: writes by O_WRONLY pass through the kernel's FUSE code, which then drops them by itself. */
    if (access == O_RDWR && !(n.flags & NODE_DIRTY)) {
        nodes_set_flag(s->table, id, NODE_DIRTY, true);
        fuse_lowlevel_notify_inval_inode(s->fuse, id, -1, 0);
    }
    test_point(s, "open", "after-act");
    r = nodes_count_open(s->table, rq->intent, id, access != O_RDONLY, &n);
    if (r < 0)
        return r;
    if (n.flags & NODE_GONE && !node_fds_is_shared(&s->fds, id)) {
        int held = node_fds_get(&s->fds, id, NODE_FD_HELD);
        if (held >= 0)
            node_hold_fd(s, id, held, true);
    }
    fi->fh = 0;
    fi->backing_id = backing;
    fi->noflush = backing > 0;
    fi->keep_cache = backing == 0 && s->config->exclusive;
    return 0;
}

int opens_add(struct request *rq, uint64_t id, int fd, struct fuse_file_info *fi)
{
    inode_lock(&rq->session->inode_locks, id);
    int r = add_locked(rq, id, fd, fi);
    inode_unlock(&rq->session->inode_locks, id);
    if (r == 0)
        counts_add_open(&rq->session->table->head->counts, fi->backing_id > 0);
    return r;
}

static void release_locked(struct request *rq, uint64_t id, bool writer)
{
    struct session *s = rq->session;
    struct table_node n;
    if (nodes_count_release(s->table, rq->intent, id, writer, &n) < 0)
        return;
    if (n.writers == 0)
        node_fds_close(&s->fds, id, NODE_FD_WRITE);
    if (n.opens > 0)
        return;
    node_fds_close(&s->fds, id, NODE_FD_READ);
    if (n.flags & NODE_PLAIN)
        nodes_set_flag(s->table, id, NODE_PLAIN, false);
}

void opens_remove(struct request *rq, uint64_t id, const struct fuse_file_info *fi)
{
    inode_lock(&rq->session->inode_locks, id);
    release_locked(rq, id, (fi->flags & O_ACCMODE) != O_RDONLY);
    inode_unlock(&rq->session->inode_locks, id);
    backing_keep(rq, id);
}

int opens_plain_fd(struct session *s, uint64_t id, bool write)
{
    enum node_fd_kind kind = write ? NODE_FD_WRITE : NODE_FD_READ;
    int fd = node_fds_get(&s->fds, id, kind);
    if (fd >= 0)
        return fd;
    fd = lower_open(s, id, write ? O_RDWR : O_RDONLY);
    return fd < 0 ? fd : node_fds_put(&s->fds, id, kind, fd);
}
