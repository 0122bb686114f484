/* SPDX-License-Identifier: Apache-2.0 */
/* Opens of one inode take turns (the gate), because the kernel wants one mode and one backing id an inode, from its
 * first open to its last release; ours is decided by the first. */
#include "kernel.h"
#include "serve.h"
#include <fcntl.h>

void gate_enter(struct gate *g, uint64_t id)
{
    size_t place = countof(g->inside);
    pthread_mutex_lock(&g->lock);
    while (place == countof(g->inside)) {
        bool taken = false;
        size_t room = countof(g->inside);
        for (size_t k = 0; k < countof(g->inside); k++) {
            taken |= g->inside[k] == id;
            if (g->inside[k] == 0)
                room = k;
        }
        if (!taken)
            place = room;
        if (place == countof(g->inside))
            pthread_cond_wait(&g->left, &g->lock);
    }
    g->inside[place] = id;
    pthread_mutex_unlock(&g->lock);
}

void gate_leave(struct gate *g, uint64_t id)
{
    pthread_mutex_lock(&g->lock);
    for (size_t k = 0; k < countof(g->inside); k++)
        if (g->inside[k] == id)
            g->inside[k] = 0;
    pthread_cond_broadcast(&g->left);
    pthread_mutex_unlock(&g->lock);
}

void opens_close_backing(struct serve *s, struct intent *i, int32_t backing)
{
    uint32_t id = (uint32_t)backing;
    if (backing > 0)
        ioctl(s->fuse_fd, KERNEL_BACKING_CLOSE, &id);
    i->closing = 0;
}

/* Backing ids only grow, so those that the dead made and did not write down are among the next few. */
void opens_recover(struct serve *s)
{
    struct table_head *h = s->table->head;
    bool mapping = false;
    for (size_t k = 0; k < INTENTS_MAX; k++) {
        struct intent *i = &h->intents[k];
        if (i->unique && i->closing > 0 && !table_has_backing(s->table, i->closing))
            opens_close_backing(s, i, i->closing);
        mapping |= i->unique && i->mapping;
    }
    for (int32_t b = h->backing_high + 1; mapping && b <= h->backing_high + 2 * THREADS_MAX; b++) {
        uint32_t id = (uint32_t)b;
        ioctl(s->fuse_fd, KERNEL_BACKING_CLOSE, &id);
    }
}

static int make_backing(struct job *j, uint64_t id, int32_t *ret_backing)
{
    struct serve *s = j->serve;
    auto_fd fd = below_open(s, id, O_PATH);
    if (fd < 0)
        return fd;
    struct kernel_backing_map m = {.fd = fd};
    j->intent->mapping = 1;
    STORED();
    int b = ioctl(s->fuse_fd, KERNEL_BACKING_OPEN, &m);
    int r = b > 0 ? 0 : -errno;
    test_point(s, "open", "mapped");
    if (r == 0)
        table_set_backing(s->table, id, b);
    STORED();
    j->intent->mapping = 0;
    *ret_backing = b;
    return r;
}

/* In the gate. The mode of the first open holds for all; passthrough that fails for a first one makes it plain. */
static int choose_mode(struct job *j, uint64_t id, const struct node *n, int32_t *ret_backing)
{
    struct serve *s = j->serve;
    *ret_backing = n->backing;
    if (!s->passthrough || n->flags & NODE_PLAIN || n->backing)
        return 0;
    int r = make_backing(j, id, ret_backing);
    if (r == 0 || n->opens > 0 || s->config->passthrough == KEEPER_PASSTHROUGH_ON)
        return r;
    *ret_backing = 0;
    table_set_flag(s->table, id, NODE_PLAIN, true);
    return 0;
}

static int add_inside(struct job *j, uint64_t id, struct fuse_file_info *fi)
{
    struct serve *s = j->serve;
    struct node n;
    int32_t backing = 0;
    bool writer = (fi->flags & O_ACCMODE) != O_RDONLY;
    int r = table_get(s->table, id, &n);
    if (r == 0)
        r = choose_mode(j, id, &n, &backing);
    if (r < 0)
        return r;
    /* Marked before the answer: from then on stores may come. And the kernel forgets what it holds for true. */
    if (writer && !(n.flags & NODE_DIRTY)) {
        table_set_flag(s->table, id, NODE_DIRTY, true);
        fuse_lowlevel_notify_inval_inode(s->session, id, -1, 0);
    }
    test_point(s, "open", "after-act");
    r = table_count_open(s->table, j->intent, id, writer, &n);
    if (r < 0)
        return r;
    if (n.flags & NODE_GONE && !fds_is_shared(&s->fds, id)) {
        int held = fds_get(&s->fds, id, FDS_HELD);
        if (held >= 0)
            node_hold_fd(s, id, held, true);
    }
    fi->fh = 0;
    fi->backing_id = backing;
    fi->noflush = backing > 0;
    fi->keep_cache = backing == 0 && s->config->exclusive;
    return 0;
}

int opens_add(struct job *j, uint64_t id, struct fuse_file_info *fi)
{
    gate_enter(&j->serve->gate, id);
    int r = add_inside(j, id, fi);
    gate_leave(&j->serve->gate, id);
    if (r == 0)
        counts_add_open(&j->serve->table->head->counts, fi->backing_id > 0);
    return r;
}

static void release_inside(struct job *j, uint64_t id, bool writer)
{
    struct serve *s = j->serve;
    struct node n;
    if (table_count_release(s->table, j->intent, id, writer, &n) < 0)
        return;
    if (n.writers == 0)
        fds_close(&s->fds, id, FDS_WRITE);
    if (n.opens > 0)
        return;
    fds_close(&s->fds, id, FDS_READ);
    opens_close_backing(s, j->intent, table_take_backing(s->table, j->intent, id, true));
    if (n.flags & NODE_PLAIN)
        table_set_flag(s->table, id, NODE_PLAIN, false);
}

void opens_remove(struct job *j, uint64_t id, const struct fuse_file_info *fi)
{
    gate_enter(&j->serve->gate, id);
    release_inside(j, id, (fi->flags & O_ACCMODE) != O_RDONLY);
    gate_leave(&j->serve->gate, id);
}

int opens_plain_fd(struct serve *s, uint64_t id, bool write)
{
    enum fds_kind kind = write ? FDS_WRITE : FDS_READ;
    int fd = fds_get(&s->fds, id, kind);
    if (fd >= 0)
        return fd;
    fd = below_open(s, id, write ? O_RDWR : O_RDONLY);
    return fd < 0 ? fd : fds_put(&s->fds, id, kind, fd);
}
