/* SPDX-License-Identifier: Apache-2.0 */
#include "serve.h"

struct fds_entry {
    struct fds_entry *next;
    uint64_t id;
    int fd[FDS_KINDS];
    bool shared;
};

static struct fds_entry **find(struct fds *f, uint64_t id)
{
    struct fds_entry **at = &f->chains[id % countof(f->chains)];
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

int fds_get(struct fds *f, uint64_t id, enum fds_kind kind)
{
    pthread_mutex_lock(&f->lock);
    const struct fds_entry *e = *find(f, id);
    int fd = e ? e->fd[kind] : -1;
    pthread_mutex_unlock(&f->lock);
    return fd;
}

int fds_put(struct fds *f, uint64_t id, enum fds_kind kind, int own_fd)
{
    struct fds_entry *spare = xcalloc(1, sizeof(*spare));
    int surplus = -1;
    pthread_mutex_lock(&f->lock);
    struct fds_entry **at = find(f, id);
    if (!*at) {
        *spare = (struct fds_entry){.id = id, .fd = {-1, -1, -1}};
        *at = take(&spare);
    }
    if ((*at)->fd[kind] < 0)
        (*at)->fd[kind] = own_fd;
    else
        surplus = own_fd;
    int kept = (*at)->fd[kind];
    pthread_mutex_unlock(&f->lock);
    free(spare);
    if (surplus >= 0)
        close(surplus);
    return kept;
}

bool fds_share(struct fds *f, uint64_t id)
{
    pthread_mutex_lock(&f->lock);
    struct fds_entry *e = *find(f, id);
    bool was = !e || e->shared;
    if (e)
        e->shared = true;
    pthread_mutex_unlock(&f->lock);
    return was;
}

bool fds_is_shared(struct fds *f, uint64_t id)
{
    pthread_mutex_lock(&f->lock);
    const struct fds_entry *e = *find(f, id);
    bool shared = e && e->shared;
    pthread_mutex_unlock(&f->lock);
    return shared;
}

void fds_close(struct fds *f, uint64_t id, enum fds_kind kind)
{
    struct fds_entry *empty = NULL;
    int fd = -1;
    pthread_mutex_lock(&f->lock);
    struct fds_entry **at = find(f, id);
    struct fds_entry *e = *at;
    if (e) {
        fd = e->fd[kind];
        e->fd[kind] = -1;
        if (e->fd[FDS_HELD] < 0 && e->fd[FDS_READ] < 0 && e->fd[FDS_WRITE] < 0) {
            *at = e->next;
            empty = e;
        }
    }
    pthread_mutex_unlock(&f->lock);
    free(empty);
    if (fd >= 0)
        close(fd);
}
