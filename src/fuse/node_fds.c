/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "util/thread.h"

struct node_fds_entry {
    struct node_fds_entry *next;
    uint64_t id;
    int fd[NODE_FD_KINDS];
    bool shared;
};

static struct node_fds_entry **find_fds(struct node_fds *f, uint64_t id)
{
    struct node_fds_entry **at = &f->chains[id % countof(f->chains)];
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

int node_fds_get(struct node_fds *f, uint64_t id, enum node_fd_kind kind)
{
    auto_lock(&f->lock);
    const struct node_fds_entry *e = *find_fds(f, id);
    return e ? e->fd[kind] : -1;
}

int node_fds_put(struct node_fds *f, uint64_t id, enum node_fd_kind kind, int own_fd)
{
    auto_mem struct node_fds_entry *spare = xcalloc(1, sizeof(*spare));
    pthread_mutex_lock(&f->lock);
    struct node_fds_entry **at = find_fds(f, id);
    if (!*at) {
        *spare = (struct node_fds_entry){.id = id, .fd = {-1, -1, -1}};
        *at = take(&spare);
    }
    bool is_first = (*at)->fd[kind] < 0;
    if (is_first)
        (*at)->fd[kind] = own_fd;
    int fd = (*at)->fd[kind];
    pthread_mutex_unlock(&f->lock);
    if (!is_first)
        close(own_fd);
    return fd;
}

bool node_fds_share(struct node_fds *f, uint64_t id)
{
    auto_lock(&f->lock);
    struct node_fds_entry *e = *find_fds(f, id);
    bool was = !e || e->shared;
    if (e)
        e->shared = true;
    return was;
}

bool node_fds_is_shared(struct node_fds *f, uint64_t id)
{
    auto_lock(&f->lock);
    const struct node_fds_entry *e = *find_fds(f, id);
    return e && e->shared;
}

void node_fds_close(struct node_fds *f, uint64_t id, enum node_fd_kind kind)
{
    int fd = -1;
    struct node_fds_entry *empty = NULL;
    pthread_mutex_lock(&f->lock);
    struct node_fds_entry **at = find_fds(f, id);
    struct node_fds_entry *e = *at;
    if (e) {
        fd = take_fd(&e->fd[kind]);
        if (e->fd[NODE_FD_HELD] < 0 && e->fd[NODE_FD_READ] < 0 && e->fd[NODE_FD_WRITE] < 0) {
            *at = e->next;
            empty = e;
        }
    }
    pthread_mutex_unlock(&f->lock);
    if (fd >= 0)
        close(fd);
    free(empty);
}
