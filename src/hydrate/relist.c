/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces a listing that is out of date. Files whose object is unchanged are kept. Files whose object has changed are
 * removed; where users can read them, they are marked, and stay until the new version replaces them. Files whose object
 * is gone are removed, too, but where users can read them only on request; until then a list holds them.
 *
 * The new catalog and its journal are written to a directory of their own. Until both are complete and durable, the old
 * ones hold and nothing is fetched; a run that is killed before lists again. The new catalog takes effect when it gets
 * its name; the journal belongs to the catalog whose uid is in its head. */
#include "private.h"
#include "util/file.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

/* Of files whose object is gone: "cistern-gone 1", and "SIZE MTIME PATH" each, with a NUL behind each. The first record
 * was missing before formats had versions. */
static const char gone_file[] = "gone";
#define GONE_HEAD "cistern-gone "
enum { GONE_FORMAT = 1 };
static const char relist_dir[] = "anew"; /* a name on disk: older versions look for it, too */
enum { REMOVALS_MAX = 4096 };            /* removed at a time: each batch costs an fsync of the old journal */

/* Walks one catalog in the order of its paths. */
struct relist_cursor {
    const struct index *index;
    uint64_t at, count, id;
    struct index_entry e;
};

struct removals {
    uint64_t ids[REMOVALS_MAX];
    size_t count;
    FILE *gone; /* owned: the list of gone objects */
};

static int load(struct relist_cursor *c, struct err *err)
{
    if (c->at == c->count)
        return 0;
    if (c->at % PLAN_RELEASE_OBJECTS == 0)
        index_release(c->index);
    int r = index_at(c->index, c->at, &c->id, err);
    return r == 0 ? index_get(c->index, c->id, &c->e, err) : r;
}

static int step(struct relist_cursor *c, struct err *err)
{
    c->at++;
    return load(c, err);
}

/* Without an ETag or a generation, only a checksum of the whole object identifies its version. */
static bool is_unchanged(const struct index_entry *was, const struct index_entry *is)
{
    bool is_pinned = store_object_is_pinned(&(struct store_object){.etag = is->etag, .generation = is->generation});
    return was->size_bytes == is->size_bytes && was->source == is->source && was->generation == is->generation &&
           str_eq(was->etag, is->etag) &&
           (is_pinned || (is->digest.kind != HASH_NONE && digest_eq(&was->digest, &is->digest)));
}

/* ---- removal ----------------------------------------------------------------------------------------------------- */

static bool is_used(const struct index *x, struct str below)
{
    bool is;
    return index_has_prefix(x, below, &is, ERR_IGNORED) == 0 && is;
}

/* Also removes directories that held only removed files: a new object may have the name of one. */
static int drop_dirs(struct hydrate *h, struct str below, struct err *err)
{
    while (below.len > 0 && !is_used(h->index, below)) {
        struct str name = str_sub(below, 0, below.len - 1);
        int e = target_unlink(h->target, name, AT_REMOVEDIR);
        if (e == ENOTEMPTY || e == EEXIST || e == ENOTDIR || e == ELOOP || e == EBUSY)
            return 0; /* it holds files of others */
        if (e != 0 && e != ENOENT)
            return err_sys(err, e, "cannot remove the directory '%.*s'", (int)min_u64(name.len, 200), name.ptr);
        below = str_sub(name, 0, path_directory_len(name));
    }
    return 0;
}

/* A file whose object has changed or is gone. */
static int drop(struct hydrate *h, struct str path, struct err *err)
{
    int r = path.ptr[path.len - 1] == '/' ? 0 : target_remove(h->target, path, err);
    return r < 0 ? r : drop_dirs(h, str_sub(path, 0, path_directory_len(path)), err);
}

/* A volume's journal first: a crash in between must leave a file too many, never a record of a missing one. In a DIR
 * each file is checked anyway, and there the record must live as long as the file. */
static int drop_all(struct hydrate *h, struct removals *removals, struct err *err)
{
    bool is_volume = h->target->kind == TARGET_VOLUME && removals->count > 0;
    for (size_t i = 0; i < removals->count && is_volume; i++)
        journal_unwritten(h->old.journal, removals->ids[i]);
    int r = is_volume ? journal_sync(h->old.journal, err) : 0;
    for (size_t i = 0; i < removals->count && r == 0; i++) {
        struct index_entry e;
        r = index_get(h->old.index, removals->ids[i], &e, err);
        if (r == 0)
            r = target_is_visible(h->target) ? target_mark_outdated(h->target, e.path, err) : drop(h, e.path, err);
    }
    removals->count = 0;
    return r;
}

/* Whether the file was replaced or changed since the hydration wrote it: it gave the file its object's time. */
static bool is_foreign(const struct hydrate *h, const struct index_entry *was)
{
    struct stat st;
    if (!target_stat(h->target, was->path, &st))
        return false;
    if (target_is_outdated(&st))
        return false;
    bool is_as_old = S_ISDIR(st.st_mode) || was->mtime_ns == 0 || target_time_matches(&st, was->mtime_ns);
    return !is_as_old || !target_stat_matches(&st, was->path, was->size_bytes);
}

/* Whether a hydration wrote the file at the path. Where no other process can write, it wrote every file. Elsewhere the
 * journal shows it, but a kill loses the last records. So a file with the old object's time counts, too, if the object
 * is listed with another version: otherwise the new version could never be written. */
static bool was_hydrated(const struct hydrate *h, const struct relist_cursor *was, bool is_listed)
{
    struct str path = was->e.path;
    if (path.len > 0 && path.ptr[path.len - 1] == '/')
        path.len--;
    if (path_check(path, ERR_IGNORED) < 0)
        return false;
    if (!target_is_visible(h->target))
        return true;
    if (!journal_is_whole(h->old.journal, was->id))
        return is_listed && !target_has_foreign(h->target, path, object_file(&was->e));
    return !is_foreign(h, &was->e);
}

/* ---- gone objects ------------------------------------------------------------------------------------------------ */

/* The journal loses records in a reboot; the attributes of a file that a hydration wrote stay. A file that cannot be
 * looked at counts, too: the list must not lose it. */
static bool is_ours(const struct hydrate *h, struct str path, uint64_t size_bytes, int64_t mtime_ns)
{
    struct stat st;
    if (mtime_ns == 0 || path_check(path, ERR_IGNORED) < 0)
        return false;
    if (!target_stat(h->target, path, &st))
        return errno != ENOENT && errno != ENOTDIR;
    return target_is_outdated(&st) ||
           (S_ISREG(st.st_mode) && (uint64_t)st.st_size == size_bytes && target_time_matches(&st, mtime_ns));
}

static int gone_file_found(struct hydrate *h, struct str path, struct err *err)
{
    atomic_fetch_add(h->o.delete_gone ? &h->progress.deleted : &h->progress.gone, 1);
    return h->o.delete_gone ? drop(h, path, err) : 0;
}

/* A run may have ended between the removal of a file and that of its directory. */
static int gone_file_missing(struct hydrate *h, struct str path, struct err *err)
{
    struct stat st;
    if (!h->o.delete_gone || path_check(path, ERR_IGNORED) < 0 || target_stat(h->target, path, &st) || errno != ENOENT)
        return 0;
    return drop_dirs(h, str_sub(path, 0, path_directory_len(path)), err);
}

/* An object that the new listing lacks, and whose file users can read. */
static int gone(struct hydrate *h, FILE *list, const struct index_entry *was, struct err *err)
{
    if (!is_ours(h, was->path, was->size_bytes, was->mtime_ns))
        return gone_file_missing(h, was->path, err);
    if (!h->o.delete_gone)
        fprintf(list, "%" PRIu64 " %" PRId64 " %.*s%c", was->size_bytes, was->mtime_ns, STR_FMT(was->path), '\0');
    return gone_file_found(h, was->path, err);
}

static int gone_check_format(struct str line, struct err *err)
{
    uint64_t format = 0;
    if (!str_starts(line, STR(GONE_HEAD)) ||
        (str_to_u64(str_from(line, sizeof GONE_HEAD - 1), &format, ERR_IGNORED) == 0 && format <= GONE_FORMAT))
        return 0;
    return err_fail(err, ERR_UNSUPPORTED, CIS_CATALOG_VERSION,
                    "'%s': format %" PRIu64 " of a newer Cistern; this one reads formats up to %d", gone_file, format,
                    GONE_FORMAT);
}

/* The objects that earlier relists missed. */
static int gone_before(struct hydrate *h, FILE *list, struct err *err)
{
    auto_mem char *line = NULL;
    size_t room = 0;
    int r = 0;
    while (r == 0 && getdelim(&line, &room, '\0', list) > 0) {
        uint64_t size_bytes, id;
        int64_t mtime_ns;
        int at = 0;
        r = gone_check_format(str_of(line), err);
        if (r < 0 || sscanf(line, "%" SCNu64 " %" SCNd64 " %n", &size_bytes, &mtime_ns, &at) != 2 || at == 0)
            continue;
        struct str path = str_of(line + at);
        if (index_find(h->index, path, &id, ERR_IGNORED) < 0)
            r = is_ours(h, path, size_bytes, mtime_ns) ? gone_file_found(h, path, err)
                                                       : gone_file_missing(h, path, err);
    }
    return r;
}

static FILE *gone_open(const struct hydrate *h)
{
    struct stat st;
    auto_fd fd = openat(h->target->state, gone_file, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *f = fd < 0 || fstat(fd, &st) != 0 ? NULL : fdopen(fd, "a+");
    if (f && st.st_size == 0)
        fprintf(f, GONE_HEAD "%d%c", GONE_FORMAT, '\0');
    if (f)
        (void)take_fd(&fd);
    return f;
}

/* ---- comparison -------------------------------------------------------------------------------------------------- */

static void keep_file(struct hydrate *h, uint64_t id, uint64_t old_id)
{
    if (journal_is_whole(h->old.journal, old_id))
        journal_written(h->journal, id);
    else if (!target_is_visible(h->target)) /* else the temporary name contains the old id */
        journal_adopt_parts(h->journal, id, h->old.journal, old_id);
}

/* Like is_unchanged(). For a DIR, size and time decide where the store has no validators. */
static bool is_same(const struct hydrate *h, const struct index_entry *was, const struct index_entry *is)
{
    bool has_validator = is->generation || is->etag.len || was->etag.len || is->digest.kind != HASH_NONE;
    if (!target_is_visible(h->target) || has_validator)
        return is_unchanged(was, is);
    return was->size_bytes == is->size_bytes && was->mtime_ns == is->mtime_ns && is->mtime_ns != 0;
}

static int compare_entry(struct hydrate *h, struct removals *removals, const struct relist_cursor *was,
                         const struct relist_cursor *is, struct err *err)
{
    bool is_visible = target_is_visible(h->target);
    if (!is && is_visible)
        return gone(h, removals->gone, &was->e, err);
    if (is && is_same(h, &was->e, &is->e)) {
        if (!is_visible || is->e.mtime_ns == 0) /* else hydrate_space_recover() looks at the file itself */
            keep_file(h, is->id, was->id);
    } else if (was_hydrated(h, was, is != NULL)) {
        removals->ids[removals->count++] = was->id;
        atomic_fetch_add(&h->progress.changed, is != NULL);
    }
    return removals->count == REMOVALS_MAX ? drop_all(h, removals, err) : 0;
}

static int compare(struct hydrate *h, struct removals *removals, struct err *err)
{
    struct relist_cursor was = {.index = h->old.index, .count = index_count(h->old.index)},
                         is = {.index = h->index, .count = index_count(h->index)};
    int r = load(&was, err);
    if (r == 0)
        r = load(&is, err);
    while (r == 0 && was.at < was.count) {
        int order = is.at < is.count ? str_cmp(was.e.path, is.e.path) : -1;
        if (order > 0) {
            r = step(&is, err);
            continue;
        }
        r = compare_entry(h, removals, &was, order == 0 ? &is : NULL, err);
        if (r == 0)
            r = step(&was, err);
    }
    return r == 0 ? drop_all(h, removals, err) : r;
}

/* Removes the files that wait for their new version if the disk cannot hold all of both. */
static int make_room(struct hydrate *h, struct err *err)
{
    int r = 0;
    if (h->space.outdated_bytes == 0 || h->space.need_bytes <= h->space.free_bytes - h->space.outdated_bytes)
        return 0;
    for (uint64_t id = 0; id < index_count(h->index) && r == 0; id++) {
        struct index_entry e;
        struct stat st;
        r = index_get(h->index, id, &e, err);
        if (r == 0 && target_stat(h->target, e.path, &st) && target_is_outdated(&st))
            r = target_remove(h->target, e.path, err);
    }
    return r;
}

static int count_space(struct hydrate *h, struct err *err)
{
    int r = target_space(h->target, &h->space.free_bytes, &h->space.free_files, &h->space.block_bytes, err);
    if (r == 0)
        r = hydrate_space_recover(h, err);
    if (r == 0)
        r = hydrate_space_check(h, err);
    return r == 0 ? make_room(h, err) : r;
}

/* ---- the exchange ------------------------------------------------------------------------------------------------ */

static int complete_exchange(const struct hydrate *h, int dir, struct err *err)
{
    int state = h->target->state;
    bool is_its;
    int r = journal_is_of(dir, index_uid(h->index), &is_its, err);
    if (r < 0 || !is_its)
        return r;
    /* The old partial catalog. The journal last: it marks the exchange as incomplete. */
    if (unlinkat(state, INDEX_PARTIAL_FILE, 0) != 0 && errno != ENOENT)
        return err_sys(err, errno, "cannot remove '%s'", INDEX_PARTIAL_FILE);
    if (renameat(dir, JOURNAL_FILE, state, JOURNAL_FILE) != 0)
        return err_sys(err, errno, "cannot rename '%s'", JOURNAL_FILE);
    return dir_sync(state, "the state directory", err);
}

int relist_recover(const struct hydrate *h, struct err *err)
{
    auto_fd dir = -1;
    int r = dir_open(h->target->state, relist_dir, &dir, err);
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r == 0)
        r = complete_exchange(h, dir, err);
    return r == 0 ? dir_remove(h->target->state, relist_dir, err) : r;
}

static int exchange(struct hydrate *h, struct err *err)
{
    int state = h->target->state;
    auto_fd dir = -1;
    int r = dir_open(state, relist_dir, &dir, err);
    if (r < 0)
        return r;
    if (renameat(dir, INDEX_FILE, state, INDEX_FILE) != 0)
        return err_sys(err, errno, "cannot rename '%s'", INDEX_FILE);
    r = dir_sync(state, "the state directory", err);
    if (r == 0)
        r = relist_recover(h, err);
    return r == 0 ? target_drop_temporary(h->target, err) : r;
}

int relist_begin(struct hydrate *h, const struct index_source *source, struct err *err)
{
    auto_fd dir = -1;
    h->is_relisting = true;
    h->old.index = take(&h->index);
    h->old.journal = take(&h->journal);
    int r = dir_make(h->target->state, relist_dir, 0700, &dir, err);
    if (r == 0)
        r = index_create(dir, source, &h->index, err);
    return r == 0 ? journal_open(dir, index_uid(h->index), PLAN_PART_BYTES, NULL, &h->journal, err) : r;
}

int relist_finish(struct hydrate *h, struct err *err)
{
    auto_mem struct removals *removals = xcalloc(1, sizeof *removals);
    removals->gone = gone_open(h);
    if (!removals->gone)
        return err_sys(err, errno, "cannot open '%s'", gone_file);
    int r = gone_before(h, removals->gone, err);
    if (r == 0)
        r = compare(h, removals, err);
    bool failed = ferror(removals->gone);
    if ((fclose(removals->gone) != 0 || failed) && r == 0)
        r = err_set(err, ERR_IO, "cannot read or write '%s'", gone_file);
    if (r == 0 && atomic_load(&h->progress.gone) == 0 && unlinkat(h->target->state, gone_file, 0) != 0)
        r = err_sys(err, errno, "cannot remove '%s'", gone_file);
    if (r == 0)
        r = count_space(h, err);
    if (r == 0)
        r = barrier_run(h, err);
    if (r == 0)
        r = exchange(h, err);
    if (r < 0)
        return r;
    index_free(take(&h->old.index));
    journal_free(take(&h->old.journal));
    return 0;
}
