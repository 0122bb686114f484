/* SPDX-License-Identifier: Apache-2.0 */
#include "tree.h"
#include "util/file.h"
#include <fcntl.h>
#include <limits.h>

void tree_init(struct tree *t, int root, mode_t mode)
{
    *t = (struct tree){.root = root, .mode = mode};
    for (size_t i = 0; i < TREE_SLOTS; i++)
        t->slots[i].fd = -1;
}

static void slot_done(struct tree_slot *s)
{
    fd_close(&s->fd);
    free(s->path);
    s->path = NULL;
}

void tree_done(struct tree *t)
{
    for (size_t i = 0; i < TREE_SLOTS; i++)
        slot_done(&t->slots[i]);
}

/* All directories on the way: a killed run may have made the upper ones without this. */
static int own(const struct tree *t, const char *path, size_t len, struct err *err)
{
    char parent[PATH_MAX];
    if (t->uid == 0 && t->gid == 0)
        return 0;
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/')
            continue;
        memcpy(parent, path, i); /* path_check() accepted it: shorter than PATH_MAX */
        parent[i] = '\0';
        if (fchownat(t->root, parent, t->uid, t->gid, AT_SYMLINK_NOFOLLOW) != 0)
            return err_sys(err, errno, "cannot give '%s' to user %u", parent, t->uid);
    }
    return 0;
}

int tree_parent(struct tree *t, const char *path, int *ret_dir, const char **ret_name, struct err *err)
{
    const char *slash = strrchr(path, '/');
    if (!slash) {
        *ret_dir = t->root;
        *ret_name = path;
        return 0;
    }
    struct str parent = {path, (size_t)(slash - path)};
    struct tree_slot *s = &t->slots[str_hash(parent, 0) % TREE_SLOTS];
    if (!s->path || !str_eq((struct str){s->path, s->len}, parent)) {
        auto_fd made = -1;
        int r = dir_make_parents(t->root, path, t->mode, &made, ret_name, err);
        if (r == 0)
            r = own(t, path, parent.len, err);
        if (r < 0)
            return r;
        slot_done(s);
        *s = (struct tree_slot){.path = str_dup(parent), .len = parent.len, .fd = take_fd(&made)};
    }
    *ret_dir = s->fd;
    *ret_name = slash + 1;
    return 0;
}
