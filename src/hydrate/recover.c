/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what earlier runs left, and checks that it still exists where others may have removed it. */
#include "private.h"
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

bool path_stat(const struct hydrate *h, struct str path, struct stat *ret)
{
    char text[PATH_MAX];
    if (path.len == 0 || path.len >= sizeof text)
        return false;
    memcpy(text, path.ptr, path.len);
    text[path.len] = '\0';
    return fstatat(h->target->data, text, ret, AT_SYMLINK_NOFOLLOW) == 0;
}

/* By kind and size only: not every file system keeps times, and reading costs as much as fetching. */
bool path_stat_matches(const struct stat *st, struct str path, uint64_t size_bytes)
{
    return S_ISDIR(st->st_mode) ? path.ptr[path.len - 1] == '/'
                                : S_ISREG(st->st_mode) && (uint64_t)st->st_size == size_bytes;
}

static bool is_there(const struct hydrate *h, struct str path, uint64_t size_bytes)
{
    struct stat st;
    return path_stat(h, path, &st) && path_stat_matches(&st, path, size_bytes);
}

/* Where users can read the files, the journal does not know what became of them since the last run: a file is the
 * object's if it has its size and its time. */
static bool find_same(struct hydrate *h, uint64_t id, const struct index_entry *e, uint64_t *ours)
{
    struct stat st;
    if (!h->is_relisting || !target_is_visible(h->target) || !path_stat(h, e->path, &st))
        return false;
    bool has_time = S_ISDIR(st.st_mode) || (e->mtime_ns != 0 && target_time_matches(&st, e->mtime_ns));
    if (!has_time || !path_stat_matches(&st, e->path, e->size_bytes)) {
        *ours += (uint64_t)st.st_blocks * 512; /* the object replaces it */
        return false;
    }
    journal_written(h->journal, id);
    return true;
}

/* A file that exists needs no free space, but counts. */
static void count(struct hydrate *h, uint64_t id, const struct index_entry *e, uint64_t *ours, bool *is_gone)
{
    uint64_t before = h->space.need_bytes;
    bool whole = journal_is_whole(h->journal, id) || find_same(h, id, e, ours);
    space_add(&h->space, e->size_bytes);
    /* No other process writes to a volume before it is complete; then it belongs to its pods. */
    if (whole && h->target->kind != TARGET_VOLUME && !is_there(h, e->path, e->size_bytes)) {
        journal_unwritten(h->journal, id);
        whole = false;
        *is_gone = true;
    }
    if (whole || journal_has_parts(h->journal, id))
        *ours += h->space.need_bytes - before;
    if (whole) {
        atomic_fetch_add(&h->progress.objects_done, 1);
        atomic_fetch_add(&h->progress.same, 1);
        atomic_fetch_add(&h->progress.bytes_done, e->size_bytes);
        h->space.free_files++;
    }
}

int recover_count(struct hydrate *h, struct err *err)
{
    uint64_t ours = 0;
    bool is_gone = false;
    for (uint64_t id = 0; id < index_count(h->index); id++) {
        struct index_entry e;
        int r = index_get(h->index, id, &e, err);
        if (r < 0)
            return r;
        count(h, id, &e, &ours, &is_gone);
        if (id % PLAN_RELEASE_OBJECTS == 0)
            index_release(h->index);
    }
    h->space.free_bytes += ours;
    return is_gone ? journal_sync(h->journal, err) : 0;
}
