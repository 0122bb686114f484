/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a small object: one open, write and close. */
#include "private.h"
#include "util/file.h"
#include <fcntl.h>
#include <limits.h>

int directory_object_make(struct hydrate_lane *l, const struct index_entry *e, struct err *err)
{
    int dir;
    const char *name;
    struct sbuf *b = &l->key;
    /* Its path ends in '/': make it as the parent of a file that is never created. */
    sbuf_set(b, e->path);
    sbuf_addc(b, 'x');
    return tree_parent(&l->tree, b->ptr, &dir, &name, err);
}

static int write_file(struct hydrate_lane *l, int dir, const char *name, uint64_t id, const struct index_entry *e,
                      const void *bytes, struct err *err)
{
    auto_fd fd = -1;
    int r = target_create(l->h->target, dir, name, id, O_WRONLY, false, &fd, err);
    if (r < 0)
        return r;
    if (e->size_bytes > 0)
        r = file_write_all(fd, name, bytes, e->size_bytes, err);
    if (r == 0)
        r = times_set(fd, e->mtime_ns, err);
    if (r == 0)
        r = target_place(l->h->target, dir, name, id, object_file(e), err);
    if (r < 0)
        target_drop(l->h->target, dir, name, id); /* others may succeed, and then users see DIR */
    return r;
}

int small_write(struct hydrate_lane *l, uint64_t id, const struct index_entry *e, const void *bytes, struct err *err)
{
    char path[PATH_MAX];
    int dir;
    const char *name;
    memcpy(path, e->path.ptr, e->path.len); /* path_check() let it pass: shorter than PATH_MAX */
    path[e->path.len] = '\0';
    int r = tree_parent(&l->tree, path, &dir, &name, err);
    if (r == 0)
        r = write_file(l, dir, name, id, e, bytes, err);
    if (r < 0)
        return r;
    atomic_fetch_add(&l->h->barrier.unsynced_bytes, e->size_bytes + 4096);
    return 0;
}

void small_discard(struct hydrate_lane *l, const struct index_entry *e)
{
    struct err err;
    /* In place, the file of this name may be a user's. */
    if (!target_is_visible(l->h->target) && target_remove(l->h->target, e->path, &err) < 0)
        run_failed(l->h, FAULT_OTHER, &err);
}
