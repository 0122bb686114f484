/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "util/thread.h"
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

/* A listing may claim any size: a sum that overflows does not fit. */
static uint64_t sum(uint64_t a, uint64_t b)
{
    return __builtin_add_overflow(a, b, &a) ? UINT64_MAX : a;
}

static uint64_t in_blocks(uint64_t size_bytes, uint64_t block_bytes)
{
    uint64_t rest = size_bytes % block_bytes;
    return sum(size_bytes, rest ? block_bytes - rest : 0);
}

static void space_add(struct hydrate_space *s, uint64_t size_bytes)
{
    s->need_bytes = sum(s->need_bytes, in_blocks(size_bytes, s->block_bytes));
    s->need_files++;
    s->largest_bytes = max_u64(s->largest_bytes, size_bytes);
}

static bool fits(const struct hydrate_space *s)
{
    return s->need_bytes <= s->free_bytes && s->need_files <= s->free_files;
}

int hydrate_space_check(struct hydrate *h, struct err *err)
{
    if (!h->o.size_check || fits(&h->space))
        return 0;
    h->lister.err_kind = FAULT_TOO_LARGE;
    return too_large(h, err);
}

void hydrate_space_count(struct hydrate *h, uint64_t size_bytes)
{
    if (h->is_relisting)
        return; /* counted when the kept files are known */
    space_add(&h->space, size_bytes);
    if (h->o.size_check && !fits(&h->space))
        atomic_store(&h->space.is_exceeded, true);
}

/* ---- files of earlier runs --------------------------------------------------------------------------------------- */

/* Threads take the objects by slices: a look at a file costs a microsecond of a processor, or a read of the disk. */
enum { SLICE_OBJECTS = 1 << 12 };

/* Sums of some objects. */
struct recovered {
    struct hydrate_space space;
    uint64_t ours_bytes; /* space that their files take already */
    uint64_t same, same_bytes;
    uint64_t changed; /* by a person: the object replaces the file */
    bool is_gone;     /* a file that the journal has is missing */
};

struct recovery {
    struct hydrate *h;
    _Atomic uint64_t next; /* id of the next object; all before it are taken */
    pthread_mutex_t lock;  /* guards the fields below, and the sums of `h` */
    bool is_gone;
    int result;
    struct err err;
};

static bool is_there(const struct hydrate *h, struct str path, uint64_t size_bytes)
{
    struct stat st;
    return target_stat(h->target, path, &st) && target_stat_matches(&st, path, size_bytes);
}

/* Users who can see the files may have changed them since the last run, which the journal does not know. So a file
 * counts as the object's if it has the size and the time of the object. */
static bool find_same(struct hydrate *h, uint64_t id, const struct index_entry *e, struct recovered *sums)
{
    struct stat st;
    if (!h->is_relisting || !target_is_visible(h->target) || !target_stat(h->target, e->path, &st))
        return false;
    bool has_time = S_ISDIR(st.st_mode) || (e->mtime_ns != 0 && target_time_matches(&st, e->mtime_ns));
    if (!has_time || !target_stat_matches(&st, e->path, e->size_bytes)) {
        uint64_t taken_bytes = (uint64_t)st.st_blocks * 512;
        sums->ours_bytes += taken_bytes; /* the object replaces it */
        sums->space.outdated_bytes += target_is_outdated(&st) ? taken_bytes : 0;
        sums->changed += h->target->overwrite && !target_is_outdated(&st);
        return false;
    }
    journal_written(h->journal, id);
    return true;
}

/* A file that exists needs no free space, but counts. */
static void recover_object(struct hydrate *h, uint64_t id, const struct index_entry *e, struct recovered *sums)
{
    bool is_recorded = journal_is_whole(h->journal, id), whole = is_recorded || find_same(h, id, e, sums);
    space_add(&sums->space, e->size_bytes);
    /* No other process writes to a volume before it is complete; then it belongs to its pods. */
    if (is_recorded && h->target->kind != TARGET_VOLUME && !is_there(h, e->path, e->size_bytes)) {
        journal_unwritten(h->journal, id);
        whole = false;
        sums->is_gone = true;
    }
    if (whole || journal_has_parts(h->journal, id))
        sums->ours_bytes = sum(sums->ours_bytes, in_blocks(e->size_bytes, sums->space.block_bytes));
    if (whole) {
        sums->same++;
        sums->same_bytes += e->size_bytes;
    }
}

static void add_sums(struct recovery *r, const struct recovered *sums)
{
    struct hydrate_space *space = &r->h->space;
    struct hydrate_progress *progress = &r->h->progress;
    auto_lock(&r->lock);
    space->need_bytes = sum(space->need_bytes, sums->space.need_bytes);
    space->need_files += sums->space.need_files;
    space->largest_bytes = max_u64(space->largest_bytes, sums->space.largest_bytes);
    space->outdated_bytes += sums->space.outdated_bytes;
    space->free_bytes = sum(space->free_bytes, sums->ours_bytes);
    space->free_files += sums->same;
    r->is_gone |= sums->is_gone;
    atomic_fetch_add(&progress->objects_done, sums->same);
    atomic_fetch_add(&progress->bytes_done, sums->same_bytes);
    atomic_fetch_add(&progress->same, sums->same);
    atomic_fetch_add(&progress->same_bytes, sums->same_bytes);
    atomic_fetch_add(&progress->changed, sums->changed);
}

static int recover_slice(struct recovery *r, uint64_t from, uint64_t to, struct err *err)
{
    struct recovered sums = {.space.block_bytes = r->h->space.block_bytes};
    if (from % PLAN_RELEASE_OBJECTS == 0)
        index_release(r->h->index);
    for (uint64_t id = from; id < to; id++) {
        struct index_entry e;
        int failed = index_get(r->h->index, id, &e, err);
        if (failed < 0)
            return failed;
        recover_object(r->h, id, &e, &sums);
    }
    add_sums(r, &sums);
    return 0;
}

static void *recover_slices(void *ctx)
{
    struct recovery *r = ctx;
    const uint64_t count = index_count(r->h->index);
    uint64_t from;
    while ((from = atomic_fetch_add(&r->next, SLICE_OBJECTS)) < count) {
        struct err err;
        int failed = recover_slice(r, from, min_u64(from + SLICE_OBJECTS, count), &err);
        if (failed < 0) {
            auto_lock(&r->lock);
            r->result = failed;
            r->err = err;
            atomic_store(&r->next, count);
        }
    }
    return NULL;
}

int hydrate_space_recover(struct hydrate *h, struct err *err)
{
    struct recovery r = {.h = h, .lock = PTHREAD_MUTEX_INITIALIZER};
    const uint64_t slices = (index_count(h->index) + SLICE_OBJECTS - 1) / SLICE_OBJECTS;
    pthread_t helpers[WORKERS_MAX];
    /* The files of a volume are not looked at: several threads would only wait for the lock of the journal. */
    const unsigned most = h->target->kind == TARGET_VOLUME ? 1 : h->o.workers ? h->o.workers : worker_count(0);
    unsigned started = 0, wanted = slices > 1 ? (unsigned)min_u64(slices, most) - 1 : 0;
    /* This thread does what helpers that cannot start would have done. */
    while (started < wanted && thread_start_named(&helpers[started], "recover", recover_slices, &r, ERR_IGNORED) == 0)
        started++;
    recover_slices(&r);
    while (started > 0)
        pthread_join(helpers[--started], NULL);
    if (r.result < 0) {
        *err = r.err;
        return r.result;
    }
    return r.is_gone ? journal_sync(h->journal, err) : 0;
}
