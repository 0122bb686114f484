/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that are an object and a folder at once (`a` and `a/b`): a store allows it, a file system does not. Whatever
 * comes first and however often a run is killed, the outcome is the same: the folder stays, the object of its name
 * fails.
 *
 * Who finds an object where its folder should be waits until everything else is done and the catalog is sorted: only
 * then can the object be found by its name, and only then is nobody writing it. */
#include "private.h"
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFERRED_MAX = 1 << 20 };

static int both(struct err *err)
{
    err_set(err, ERR_EXISTS, "it is an object, and a folder of other objects");
    return err_advise(err, 1514, "a folder cannot hold both; exclude one, or give the object another name");
}

/* h->lock held. */
static bool defer(struct hydrate *h, uint64_t id)
{
    if (h->second_round || h->deferred_count == DEFERRED_MAX)
        return false;
    if (h->deferred_count % 1024 == 0)
        h->deferred = xrealloc(h->deferred, h->deferred_count + 1024, sizeof *h->deferred);
    h->deferred[h->deferred_count++] = id;
    return true;
}

/* Is the file at the object's path one of ours? One that is whole is; one that is not may be what a failed object left,
 * or a kill before the journal told of it. */
static bool is_ours(const struct hydrate *h, uint64_t id, const struct index_entry *e)
{
    struct stat st;
    return journal_is_whole(h->journal, id) || (known_look(h, e->path, &st) && !S_ISDIR(st.st_mode) &&
                                                !target_is_taken(h->target, e->path, object_file(e)));
}

/* Takes the object away that stands where a folder is needed. The journal first: a crash in between must leave a file
 * too many, never a record of one that is gone. What is not whole has failed by itself. */
static int displace(struct lane *l, uint64_t id, const struct index_entry *e, struct err *err)
{
    struct hydrate *h = l->h;
    struct err why;
    int dir;
    const char *name;
    bool is_whole = journal_is_whole(h->journal, id);
    if (!is_ours(h, id, e))
        return 0;
    auto_mem char *path = str_dup(e->path);
    int r = journal_void(h->journal, id, err);
    if (r == 0)
        r = tree_parent(&l->tree, path, &dir, &name, err);
    if (r < 0)
        return r;
    if (unlinkat(dir, name, 0) != 0 && errno != ENOENT)
        return err_sys(err, errno, "cannot remove '%s'", path);
    if (!is_whole)
        return 0;
    atomic_fetch_sub(&h->objects_done, 1);
    atomic_fetch_sub(&h->bytes_done, e->size_bytes);
    both(&why);
    hydrate_object_failed(h, e->path, &why, 1);
    return 0;
}

static int clear_way(struct lane *l, struct str path, struct err *err)
{
    struct hydrate *h = l->h;
    for (size_t i = 0; i < path.len; i++) {
        uint64_t id;
        struct index_entry e;
        struct err ignored;
        if (path.ptr[i] != '/' || index_find(h->index, str_sub(path, 0, i), &id, &ignored) < 0)
            continue;
        int r = index_get(h->index, id, &e, err);
        if (r == 0)
            r = displace(l, id, &e, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* What else is where a folder should be is not ours to be taken away. */
static int look_for_others(const struct hydrate *h, struct str path, struct err *err)
{
    for (size_t i = 0; i < path.len; i++) {
        struct stat st;
        if (path.ptr[i] != '/' || !known_look(h, str_sub(path, 0, i), &st) || S_ISDIR(st.st_mode))
            continue;
        err_set(err, ERR_EXISTS, "'%.*s' is there, and is no folder", (int)min_u64(i, 200), path.ptr);
        return err_advise(err, 1525, "it is not of this run: move it away, and the same command goes on");
    }
    return 0;
}

int conflict_settle(struct lane *l, uint64_t id, const struct index_entry *e, struct err *err)
{
    struct hydrate *h = l->h;
    struct err failed = *err;
    if (err->sys == EISDIR || err->sys == ENOTEMPTY)
        return both(err);
    if (err->sys != ENOTDIR && err->sys != ELOOP) /* no link is followed */
        return -(int)err->code;
    pthread_mutex_lock(&h->lock);
    bool deferred = defer(h, id);
    pthread_mutex_unlock(&h->lock);
    if (deferred)
        return 1;
    pthread_mutex_lock(&h->conflict_lock);
    int r = clear_way(l, e->path, err);
    if (r == 0)
        r = look_for_others(h, e->path, err);
    pthread_mutex_unlock(&h->conflict_lock);
    /* Whether the way is clear now, the caller's next try tells. */
    if (r == 0)
        *err = failed;
    return r;
}
