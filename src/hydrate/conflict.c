/* SPDX-License-Identifier: Apache-2.0 */
/* Resolves keys that are an object and a directory at once (`a` and `a/b`): a store allows it, a file system does
 * not. The directory stays and the object of its name fails, whatever the order of arrival, and also after a kill.
 *
 * An object whose directory path is another object's path waits until all others are done and the catalog is
 * sorted. Only then can the other object be found by its name, and no lane writes it. */
#include "private.h"
#include <inttypes.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

static int conflict_error(struct err *err)
{
    return err_fail(err, ERR_EXISTS, CIS_OBJECT_DIRECTORY_CONFLICT, "its key is also a directory of other objects");
}

/* Whether the listing has objects below `path`. If it cannot say, it has: then nothing is called a user's. */
static bool has_objects_below(const struct hydrate *h, struct str path)
{
    bool has;
    auto_sbuf below = SBUF(PATH_MAX + 1);
    sbuf_add(&below, path);
    sbuf_addc(&below, '/');
    return index_has_prefix(h->index, sbuf_str(&below), &has, ERR_IGNORED) < 0 || has;
}

/* A directory is in the way of an object. */
static int directory_error(const struct hydrate *h, struct str path, enum hydrate_fault_kind *ret_kind, struct err *err)
{
    *ret_kind = FAULT_LISTING;
    if (has_objects_below(h, path))
        return conflict_error(err);
    *ret_kind = FAULT_OTHER;
    return err_fail(err, ERR_EXISTS, CIS_WRONG_FILE_TYPE, "'%.*s' exists and is a directory",
                    (int)min_u64(path.len, 200), path.ptr);
}

/* Whether a hydration wrote the file at the object's path. If the object is not whole, the file may be left from a
 * failed attempt, or from a killed run whose record was lost. */
static bool was_hydrated(const struct hydrate *h, uint64_t id, const struct index_entry *e)
{
    struct stat st;
    return journal_is_whole(h->journal, id) || (target_stat(h->target, e->path, &st) && !S_ISDIR(st.st_mode) &&
                                                !target_has_foreign(h->target, e->path, object_file(e)));
}

/* Removes the object whose path is needed for a directory. The journal first: a crash in between must leave a file too
 * many, never a record of a missing one. An object that is not whole was counted as failed before. */
static int displace(struct hydrate_lane *l, uint64_t id, const struct index_entry *e, struct err *err)
{
    struct hydrate *h = l->h;
    struct err why;
    int dir;
    const char *name;
    bool is_whole = journal_is_whole(h->journal, id);
    if (!was_hydrated(h, id, e))
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
    atomic_fetch_sub(&h->progress.objects_done, 1);
    atomic_fetch_sub(&h->progress.bytes_done, e->size_bytes);
    conflict_error(&why);
    object_failed(h, FAULT_LISTING, e->path, &why, 1);
    return 0;
}

static int clear_path(struct hydrate_lane *l, struct str path, struct err *err)
{
    struct hydrate *h = l->h;
    for (size_t i = 0; i < path.len; i++) {
        uint64_t id;
        struct index_entry e;
        if (path.ptr[i] != '/' || index_find(h->index, str_sub(path, 0, i), &id, ERR_IGNORED) < 0)
            continue;
        int r = index_get(h->index, id, &e, err);
        if (r == 0)
            r = displace(l, id, &e, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Files that no hydration wrote are never removed. */
static int check_foreign(const struct hydrate *h, struct str path, struct err *err)
{
    for (size_t i = 0; i < path.len; i++) {
        struct stat st;
        if (path.ptr[i] != '/' || !target_stat(h->target, str_sub(path, 0, i), &st) || S_ISDIR(st.st_mode))
            continue;
        bool is_link = S_ISLNK(st.st_mode);
        err_set(err, ERR_EXISTS, "'%.*s' exists and is %s", (int)min_u64(i, 200), path.ptr,
                is_link ? "a symbolic link" : "not a directory");
        return is_link ? err_advise(err, CIS_SYMLINK_IN_THE_WAY) : err_advise(err, CIS_WRONG_FILE_TYPE);
    }
    return 0;
}

int conflict_resolve(struct hydrate_lane *l, uint64_t id, const struct index_entry *e,
                     enum hydrate_fault_kind *ret_kind, struct err *err)
{
    struct hydrate *h = l->h;
    struct err first = *err;
    *ret_kind = FAULT_OTHER;
    bool is_directory = err->sys == EISDIR || err->sys == ENOTEMPTY;
    if (!is_directory && err->sys != ENOTDIR && err->sys != ELOOP) /* no link is followed */
        return -(int)err->code;
    if (hydrate_queue_defer(&h->queue, id))
        return 1;
    if (is_directory)
        return directory_error(h, e->path, ret_kind, err);
    pthread_mutex_lock(&h->conflict_lock);
    int r = clear_path(l, e->path, err);
    if (r == 0)
        r = check_foreign(h, e->path, err);
    pthread_mutex_unlock(&h->conflict_lock);
    if (r == 0) /* the caller's next attempt shows whether the path is clear */
        *err = first;
    return r;
}
