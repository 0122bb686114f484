/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include <inttypes.h>

static int too_large(const struct hydrate *h, struct err *err)
{
    const struct hydrate_space *s = &h->space;
    const char *uri = h->o.sources[h->lister.source].uri;
    char need[BYTES_TEXT_MAX], have[BYTES_TEXT_MAX];
    if (s->need_bytes > s->free_bytes)
        err_set(err, ERR_NO_SPACE, "'%s' does not fit: %" PRIu64 " objects need %s, %s are free", uri, s->need_files,
                bytes_text(s->need_bytes, need), bytes_text(s->free_bytes, have));
    else
        err_set(err, ERR_NO_SPACE,
                "'%s' does not fit: %" PRIu64 " objects, the file system has room for %" PRIu64 " files", uri,
                s->need_files, s->free_files);
    return err_advise(err, CIS_SOURCE_TOO_LARGE,
                      target_is_visible(h->target) ? "files already in place are kept" : "nothing was kept");
}

static void space_add(struct hydrate_space *s, uint64_t size_bytes)
{
    uint64_t bytes = size_bytes, rest = bytes % s->block_bytes;
    /* A listing may claim any size: a sum that overflows does not fit. */
    if (__builtin_add_overflow(bytes, rest ? s->block_bytes - rest : 0, &bytes) ||
        __builtin_add_overflow(s->need_bytes, bytes, &s->need_bytes))
        s->need_bytes = UINT64_MAX;
    s->need_files++;
    s->largest_bytes = max_u64(s->largest_bytes, size_bytes);
}

static bool fits(const struct hydrate_space *s)
{
    return s->need_bytes <= s->free_bytes && s->need_files <= s->free_files;
}

int space_check(struct hydrate *h, struct err *err)
{
    if (!h->o.size_check || fits(&h->space))
        return 0;
    h->lister.err_kind = FAULT_TOO_LARGE;
    return too_large(h, err);
}

void space_reserve(struct hydrate *h, uint64_t size_bytes)
{
    if (h->is_relisting)
        return; /* counted when the kept files are known */
    space_add(&h->space, size_bytes);
    if (h->o.size_check && !fits(&h->space))
        atomic_store(&h->space.is_exceeded, true);
}

/* ---- files of earlier runs --------------------------------------------------------------------------------------- */

static bool is_there(const struct hydrate *h, struct str path, uint64_t size_bytes)
{
    struct stat st;
    return target_stat(h->target, path, &st) && target_stat_matches(&st, path, size_bytes);
}

/* Users who can see the files may have changed them since the last run, which the journal does not know. So a file
 * counts as the object's if it has the size and the time of the object. */
static bool find_same(struct hydrate *h, uint64_t id, const struct index_entry *e, uint64_t *ours)
{
    struct stat st;
    if (!h->is_relisting || !target_is_visible(h->target) || !target_stat(h->target, e->path, &st))
        return false;
    bool has_time = S_ISDIR(st.st_mode) || (e->mtime_ns != 0 && target_time_matches(&st, e->mtime_ns));
    if (!has_time || !target_stat_matches(&st, e->path, e->size_bytes)) {
        uint64_t taken_bytes = (uint64_t)st.st_blocks * 512;
        *ours += taken_bytes; /* the object replaces it */
        h->space.outdated_bytes += target_is_outdated(&st) ? taken_bytes : 0;
        return false;
    }
    journal_written(h->journal, id);
    return true;
}

/* A file that exists needs no free space, but counts. */
static void count(struct hydrate *h, uint64_t id, const struct index_entry *e, uint64_t *ours, bool *is_gone)
{
    uint64_t before = h->space.need_bytes;
    bool is_recorded = journal_is_whole(h->journal, id), whole = is_recorded || find_same(h, id, e, ours);
    space_add(&h->space, e->size_bytes);
    /* No other process writes to a volume before it is complete; then it belongs to its pods. */
    if (is_recorded && h->target->kind != TARGET_VOLUME && !is_there(h, e->path, e->size_bytes)) {
        journal_unwritten(h->journal, id);
        whole = false;
        *is_gone = true;
    }
    if (whole || journal_has_parts(h->journal, id))
        *ours += h->space.need_bytes - before;
    if (whole) {
        atomic_fetch_add(&h->progress.objects_done, 1);
        atomic_fetch_add(&h->progress.same, 1);
        atomic_fetch_add(&h->progress.same_bytes, e->size_bytes);
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
