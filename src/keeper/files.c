/* SPDX-License-Identifier: Apache-2.0 */
/* The descriptors that the keeper holds for a mount: its session, and its open files without a name. */
#include "private.h"

bool keeper_hold_file(struct keeper *k, struct keeper_mount *v, uint64_t node, int own_fd)
{
    int i = k->free_file;
    if (i == NO_FILE) {
        close(own_fd);
        return false;
    }
    k->free_file = k->files[i].next;
    k->files[i] = (struct keeper_file){.node = node, .fd = own_fd, .next = v->first_file};
    v->first_file = i;
    return true;
}

static void release_at(struct keeper *k, int *at)
{
    int i = *at;
    fd_close(&k->files[i].fd);
    *at = k->files[i].next;
    k->files[i].next = k->free_file;
    k->free_file = i;
}

bool keeper_release_file(struct keeper *k, struct keeper_mount *v, uint64_t node)
{
    bool was_held = false;
    for (int *at = &v->first_file; *at != NO_FILE;)
        if (k->files[*at].node == node) {
            release_at(k, at);
            was_held = true;
        } else {
            at = &k->files[*at].next;
        }
    return was_held;
}

void keeper_mount_close(struct keeper *k, struct keeper_mount *v)
{
    while (v->first_file != NO_FILE)
        release_at(k, &v->first_file);
    fd_close(&v->control_fd);
    fd_close(&v->connection_fd);
    fd_close(&v->fuse_fd);
    fd_close(&v->memfd);
    table_head_unmap(v->head);
    v->head = NULL;
}
