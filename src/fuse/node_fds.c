/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "util/thread.h"

struct node_fds_entry {
    struct map_node node;
    uint64_t id;
    int fd[NODE_FD_KINDS];
    bool shared;
};

static struct node_fds_entry *find_fds(struct node_fds *f, uint64_t id)
{
    struct node_fds_entry *e;
    map_foreach_hash (&f->entries, id, e, node)
        if (e->id == id)
            return e;
    return NULL;
}

static struct node_fds_entry *add_fds(struct node_fds *f, uint64_t id)
{
    struct node_fds_entry *e = xcalloc(1, sizeof(*e));
    *e = (struct node_fds_entry){.id = id, .fd = {-1, -1, -1}};
    map_add(&f->entries, &e->node, id);
    return e;
}

int node_fds_get(struct node_fds *f, uint64_t id, enum node_fd_kind kind)
{
    auto_lock(&f->lock);
    const struct node_fds_entry *e = find_fds(f, id);
    return e ? e->fd[kind] : -1;
}

int node_fds_put(struct node_fds *f, uint64_t id, enum node_fd_kind kind, int own_fd)
{
    pthread_mutex_lock(&f->lock);
    struct node_fds_entry *e = find_fds(f, id);
    if (!e)
        e = add_fds(f, id);
    bool is_first = e->fd[kind] < 0;
    if (is_first)
        e->fd[kind] = own_fd;
    int fd = e->fd[kind];
    pthread_mutex_unlock(&f->lock);
    if (!is_first)
        close(own_fd);
    return fd;
}

bool node_fds_share(struct node_fds *f, uint64_t id)
{
    auto_lock(&f->lock);
    struct node_fds_entry *e = find_fds(f, id);
    bool was = !e || e->shared;
    if (e)
        e->shared = true;
    return was;
}

bool node_fds_is_shared(struct node_fds *f, uint64_t id)
{
    auto_lock(&f->lock);
    const struct node_fds_entry *e = find_fds(f, id);
    return e && e->shared;
}

void node_fds_close(struct node_fds *f, uint64_t id, enum node_fd_kind kind)
{
    int fd = -1;
    struct node_fds_entry *empty = NULL;
    pthread_mutex_lock(&f->lock);
    struct node_fds_entry *e = find_fds(f, id);
    if (e) {
        fd = take_fd(&e->fd[kind]);
        if (e->fd[NODE_FD_HELD] < 0 && e->fd[NODE_FD_READ] < 0 && e->fd[NODE_FD_WRITE] < 0) {
            map_remove(&f->entries, &e->node);
            empty = e;
        }
    }
    pthread_mutex_unlock(&f->lock);
    fd_close(&fd);
    free(empty);
}
