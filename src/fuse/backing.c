/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel.h"
#include "private.h"
#include "util/thread.h"
#include <fcntl.h>

void inode_lock(struct inode_locks *l, uint64_t id)
{
    auto_lock(&l->lock);
    for (;;) {
        bool taken = false;
        size_t room = countof(l->inside);
        for (size_t k = 0; k < countof(l->inside); k++) {
            taken |= l->inside[k] == id;
            if (l->inside[k] == 0)
                room = k;
        }
        if (!taken && room < countof(l->inside)) {
            l->inside[room] = id;
            return;
        }
        pthread_cond_wait(&l->left, &l->lock);
    }
}

void inode_unlock(struct inode_locks *l, uint64_t id)
{
    auto_lock(&l->lock);
    for (size_t k = 0; k < countof(l->inside); k++)
        if (l->inside[k] == id)
            l->inside[k] = 0;
    pthread_cond_broadcast(&l->left);
}

void backing_close(struct session *s, struct table_intent *i, int32_t backing)
{
    uint32_t id = (uint32_t)backing;
    if (backing > 0)
        ioctl(s->fuse_fd, TABLE_BACKING_CLOSE, &id);
    i->closing = 0;
}

/* Finds the ids that the dead process opened. Backing ids only grow, so those it did not record are among the next
 * few. */
void backing_recover(struct session *s)
{
    struct table_head *h = s->table->head;
    bool mapping = false;
    for (size_t k = 0; k < INTENTS_MAX; k++) {
        struct table_intent *i = &h->intents[k];
        if (i->unique && i->closing > 0 && !nodes_has_backing(s->table, i->closing))
            backing_close(s, i, i->closing);
        mapping |= i->unique && i->mapping;
    }
    for (uint32_t slot = TABLE_ROOT + 1; slot < h->node_high; slot++) {
        uint64_t unused = nodes_unused_backing(s->table, slot);
        if (unused)
            s->kept[unused % BACKINGS_KEPT] = unused;
    }
    for (int32_t b = h->backing_high + 1; mapping && b <= h->backing_high + 2 * THREADS_MAX; b++) {
        uint32_t id = (uint32_t)b;
        ioctl(s->fuse_fd, TABLE_BACKING_CLOSE, &id);
    }
}

static void close_unused(struct request *rq, uint64_t id)
{
    struct session *s = rq->session;
    inode_lock(&s->inode_locks, id);
    backing_close(s, rq->intent, nodes_take_backing(s->table, rq->intent, id, true));
    inode_unlock(&s->inode_locks, id);
}

void backing_keep(struct request *rq, uint64_t id)
{
    struct session *s = rq->session;
    if (!s->config->exclusive) { /* the id keeps the space of a lower file that another process deletes */
        close_unused(rq, id);
        return;
    }
    uint64_t other = atomic_exchange(&s->kept[id % BACKINGS_KEPT], id);
    if (other != 0 && other != id)
        close_unused(rq, other);
}

int backing_open(struct request *rq, uint64_t id, int fd, int32_t *ret_backing)
{
    struct session *s = rq->session;
    auto_fd own = fd < 0 ? lower_open(s, id, O_PATH) : -1;
    if (fd < 0 && own < 0)
        return own;
    struct kernel_backing_map m = {.fd = fd < 0 ? own : fd};
    rq->intent->mapping = 1;
    STORE_BARRIER();
    int b = ioctl(s->fuse_fd, KERNEL_BACKING_OPEN, &m);
    int r = b > 0 ? 0 : -errno;
    test_point(s, "open", "mapped");
    if (r == 0)
        nodes_set_backing(s->table, id, b);
    STORE_BARRIER();
    rq->intent->mapping = 0;
    *ret_backing = b;
    return r;
}
