/* SPDX-License-Identifier: Apache-2.0 */
/* A listing that is known to be out of date is made anew. What the new one names as the old one did, and an earlier run
 * brought, is kept; what it names otherwise, or no more, is taken away: also where people can read the files, since its
 * successor may fail, and the run after would not know it for ours.
 *
 * The new catalog and its journal come about in a folder of their own, and until both are whole and durable the old
 * ones are the truth: nothing is fetched meanwhile, what is taken away is none of the old truth any more, and a run
 * that is killed lists anew once more. They change places when the catalog gets its name: then that journal counts
 * whose head bears the catalog's uid. */
#include "private.h"
#include "util/file.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static const char folder[] = "anew";
enum { LOST_MAX = 4096 }; /* what is taken away at a time: each costs the old journal an fsync */

/* One catalog, in the order of its paths. */
struct cursor {
    const struct index *index;
    uint64_t at, count, id;
    struct index_entry e;
};

struct lost {
    uint64_t ids[LOST_MAX];
    size_t count;
};

static int look(struct cursor *c, struct err *err)
{
    if (c->at == c->count)
        return 0;
    if (c->at % PLAN_RELEASE_OBJECTS == 0)
        index_release(c->index);
    int r = index_at(c->index, c->at, &c->id, err);
    return r == 0 ? index_get(c->index, c->id, &c->e, err) : r;
}

static int step(struct cursor *c, struct err *err)
{
    c->at++;
    return look(c, err);
}

/* Where no ETag and no generation names its state, only a checksum over all of it does. */
static bool is_unchanged(const struct index_entry *was, const struct index_entry *is)
{
    bool is_pinned = object_is_pinned(&(struct object){.etag = is->etag, .generation = is->generation});
    return was->size_bytes == is->size_bytes && was->source == is->source && was->generation == is->generation &&
           str_eq(was->etag, is->etag) &&
           (is_pinned || (is->digest.kind != HASH_NONE && digest_eq(&was->digest, &is->digest)));
}

/* ---- what is taken away ------------------------------------------------------------------------------------------ */

static bool is_used(const struct index *x, struct str below)
{
    uint64_t at, id;
    struct index_entry e;
    struct err ignored;
    return index_lower_bound(x, below, &at, &ignored) == 0 && at < index_count(x) &&
           index_at(x, at, &id, &ignored) == 0 && index_get(x, id, &e, &ignored) == 0 && str_starts(e.path, below);
}

/* The folders that were there for its sake alone go with it: an object of such a name could not land else. */
static int drop_folders(struct hydrate *h, struct str below, struct err *err)
{
    while (below.len > 0 && !is_used(h->index, below)) {
        struct str name = str_sub(below, 0, below.len - 1);
        int e = target_unlink(h->target, name, AT_REMOVEDIR);
        if (e == ENOTEMPTY || e == EEXIST || e == ENOTDIR || e == ELOOP || e == EBUSY)
            return 0; /* somebody else has something there */
        if (e != 0 && e != ENOENT)
            return err_sys(err, e, "cannot remove the folder '%.*s'", (int)min_u64(name.len, 200), name.ptr);
        below = str_sub(name, 0, path_folder_len(name));
    }
    return 0;
}

static int drop(struct hydrate *h, struct str path, struct err *err)
{
    int r = path.ptr[path.len - 1] == '/' ? 0 : target_remove(h->target, path, err);
    return r < 0 ? r : drop_folders(h, str_sub(path, 0, path_folder_len(path)), err);
}

/* A volume's journal first: a crash in between must leave a file too many, never a record of one that is gone. In a
 * folder each file is looked for, and where people see it the record alone tells that it is ours to be taken away. */
static int drop_all(struct hydrate *h, struct lost *lost, struct err *err)
{
    bool strikes = h->target->kind == TARGET_VOLUME && lost->count > 0;
    for (size_t i = 0; i < lost->count && strikes; i++)
        journal_unwritten(h->old.journal, lost->ids[i]);
    int r = strikes ? journal_sync(h->old.journal, err) : 0;
    for (size_t i = 0; i < lost->count && r == 0; i++) {
        struct index_entry e;
        r = index_get(h->old.index, lost->ids[i], &e, err);
        if (r == 0)
            r = drop(h, e.path, err);
    }
    lost->count = 0;
    return r;
}

/* Has somebody put something else there, or written to it? What we brought has its object's time. */
static bool is_others(const struct hydrate *h, const struct index_entry *was)
{
    struct stat st;
    if (!known_look(h, was->path, &st))
        return false;
    bool is_as_old = S_ISDIR(st.st_mode) || was->mtime_ns == 0 || target_time_is(&st, was->mtime_ns);
    return !is_as_old || !known_is_its(&st, was->path, was->size_bytes);
}

/* Is what has its path there of our making? Where nobody looks all is, the beginning of an object as well. */
static bool is_ours(const struct hydrate *h, const struct cursor *was)
{
    struct err ignored;
    struct str path = was->e.path;
    if (path.len > 0 && path.ptr[path.len - 1] == '/')
        path.len--;
    if (path_check(path, &ignored) < 0)
        return false;
    if (!target_is_seen(h->target))
        return true;
    return journal_is_whole(h->old.journal, was->id) && !is_others(h, &was->e);
}

/* ---- the two side by side ---------------------------------------------------------------------------------------- */

static void keep(struct hydrate *h, uint64_t id, uint64_t old_id)
{
    if (journal_is_whole(h->old.journal, old_id))
        journal_written(h->journal, id);
    else if (!target_is_seen(h->target)) /* else they have a name that is made of the old id */
        journal_adopt_parts(h->journal, id, h->old.journal, old_id);
}

static int compare(struct hydrate *h, struct lost *lost, struct err *err)
{
    struct cursor was = {.index = h->old.index, .count = index_count(h->old.index)},
                  is = {.index = h->index, .count = index_count(h->index)};
    int r = look(&was, err);
    if (r == 0)
        r = look(&is, err);
    while (r == 0 && was.at < was.count) {
        int order = is.at < is.count ? str_cmp(was.e.path, is.e.path) : -1;
        if (order > 0) {
            r = step(&is, err);
            continue;
        }
        if (order == 0 && is_unchanged(&was.e, &is.e))
            keep(h, is.id, was.id);
        else if (is_ours(h, &was))
            lost->ids[lost->count++] = was.id;
        if (lost->count == LOST_MAX)
            r = drop_all(h, lost, err);
        if (r == 0)
            r = step(&was, err);
    }
    return r == 0 ? drop_all(h, lost, err) : r;
}

/* What is kept needs no room, and what was taken away has given its own back. */
static int count(struct hydrate *h, struct err *err)
{
    int r = target_space(h->target, &h->feed.space_bytes, &h->feed.space_files, &h->feed.block, err);
    if (r == 0)
        r = known_count(h, err);
    return r == 0 ? feed_fits(h, err) : r;
}

/* ---- the exchange ------------------------------------------------------------------------------------------------ */

static int settle(const struct hydrate *h, int dir, struct err *err)
{
    int state = h->target->state;
    bool is_its;
    int r = journal_is_of(dir, index_uid(h->index), &is_its, err);
    if (r < 0 || !is_its)
        return r;
    /* The old one, if not all was listed then. The journal last: it is what tells that there is something to do. */
    if (unlinkat(state, INDEX_PARTIAL_FILE, 0) != 0 && errno != ENOENT)
        return err_sys(err, errno, "cannot remove '%s'", INDEX_PARTIAL_FILE);
    if (renameat(dir, JOURNAL_FILE, state, JOURNAL_FILE) != 0)
        return err_sys(err, errno, "cannot name '%s'", JOURNAL_FILE);
    return dir_sync(state, "the state's folder", err);
}

int anew_settle(const struct hydrate *h, struct err *err)
{
    auto_fd dir = -1;
    int r = dir_open(h->target->state, folder, &dir, err);
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r == 0)
        r = settle(h, dir, err);
    return r == 0 ? dir_remove(h->target->state, folder, err) : r;
}

static int exchange(struct hydrate *h, struct err *err)
{
    int state = h->target->state;
    auto_fd dir = -1;
    int r = dir_open(state, folder, &dir, err);
    if (r < 0)
        return r;
    if (renameat(dir, INDEX_FILE, state, INDEX_FILE) != 0)
        return err_sys(err, errno, "cannot name '%s'", INDEX_FILE);
    r = dir_sync(state, "the state's folder", err);
    if (r == 0)
        r = anew_settle(h, err);
    return r == 0 ? target_forget(h->target, err) : r;
}

int anew_begin(struct hydrate *h, const struct index_source *source, struct err *err)
{
    auto_fd dir = -1;
    h->lists_anew = true;
    h->old.index = take(&h->index);
    h->old.journal = take(&h->journal);
    int r = dir_make(h->target->state, folder, 0700, &dir, err);
    if (r == 0)
        r = index_create(dir, source, &h->index, err);
    return r == 0 ? journal_open(dir, index_uid(h->index), PLAN_PART_BYTES, NULL, &h->journal, err) : r;
}

int anew_end(struct hydrate *h, struct err *err)
{
    auto_mem struct lost *lost = xcalloc(1, sizeof *lost);
    int r = compare(h, lost, err);
    if (r == 0)
        r = count(h, err);
    if (r == 0) /* what is kept is as durable as it was */
        r = barrier_run(h, err);
    if (r == 0)
        r = exchange(h, err);
    if (r < 0)
        return r;
    index_free(take(&h->old.index));
    journal_free(take(&h->old.journal));
    return 0;
}
