/* SPDX-License-Identifier: Apache-2.0 */
#include "tree.h"
#include "util/file.h"

void tree_init(struct tree *t, int root, mode_t mode)
{
    *t = (struct tree){.root = root, .mode = mode};
    for (size_t i = 0; i < TREE_SLOTS; i++)
        t->slots[i].fd = -1;
}

static void slot_done(struct tree_slot *s)
{
    auto_clean_fd(&s->fd);
    free(s->path);
    s->path = NULL;
}

void tree_done(struct tree *t)
{
    for (size_t i = 0; i < TREE_SLOTS; i++)
        slot_done(&t->slots[i]);
}

/* FNV-1a; http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint32_t hash_of(const char *p, size_t len)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)p[i]) * 16777619u;
    return h;
}

int tree_parent(struct tree *t, const char *path, int *ret_dir, const char **ret_name, struct err *err)
{
    const char *slash = strrchr(path, '/');
    if (!slash) {
        *ret_dir = t->root;
        *ret_name = path;
        return 0;
    }
    size_t len = (size_t)(slash - path);
    struct tree_slot *s = &t->slots[hash_of(path, len) % TREE_SLOTS];
    if (!s->path || s->len != len || memcmp(s->path, path, len) != 0) {
        int fd;
        int r = dir_make_parents(t->root, path, t->mode, &fd, ret_name, err);
        if (r < 0)
            return r;
        slot_done(s);
        *s = (struct tree_slot){.path = str_dup((struct str){path, len}), .len = len, .fd = fd};
    }
    *ret_dir = s->fd;
    *ret_name = slash + 1;
    return 0;
}
