/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool.h"
#include "private.h"
#include "util/clock.h"
#include "util/file.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

/* ---- lock -------------------------------------------------------------------------------------------------------- */

int pool_flock(int fd)
{
    int r;
    do
        r = flock(fd, LOCK_EX);
    while (r != 0 && errno == EINTR);
    return r;
}

/* The lock file holds a number that rises with every change, so that a ledger need not be read again for each call. */
static int read_generation(const struct pool *p, uint64_t *ret, struct err *err)
{
    *ret = 0;
    if (pread(p->lock_file, ret, sizeof *ret, 0) < 0)
        return err_sys(err, errno, "cannot read the lock of the pool '%s'", p->path);
    return 0;
}

static int refresh(struct pool *p, struct err *err)
{
    uint64_t generation;
    int r = read_generation(p, &generation, err);
    if (r < 0 || (generation == p->generation && generation != 0))
        return r;
    r = ledger_read(&p->ledger, p->volumes, p->making, err);
    if (r == 0)
        p->generation = generation;
    return r;
}

int pool_lock(struct pool *p, struct err *err)
{
    int r = pool_is_here(p, err);
    if (r < 0)
        return r;
    pthread_mutex_lock(&p->lock);
    r = pool_flock(p->lock_file) == 0 ? refresh(p, err) : err_sys(err, errno, "cannot lock the pool '%s'", p->path);
    if (r < 0)
        pool_unlock(p);
    return r;
}

void pool_unlock(struct pool *p)
{
    int kept_errno = errno;
    flock(p->lock_file, LOCK_UN);
    pthread_mutex_unlock(&p->lock);
    errno = kept_errno;
}

int pool_touch(struct pool *p, struct err *err)
{
    uint64_t next = p->generation + 1;
    int r = file_pwrite_all(p->lock_file, "lock", &next, sizeof next, 0, err);
    if (r == 0)
        p->generation = next;
    return r;
}

/* ---- after a crash ----------------------------------------------------------------------------------------------- */

enum { TRASH_NAMES_MAX = 1000 };

/* A volume of the same id may be in the trash already, from an earlier attempt to create it. */
static int move_to_trash(const struct pool *p, int parent, const struct volume_id *id)
{
    char name[NAME_MAX + 1];
    int r = renameat2(parent, id->text, p->trash, id->text, RENAME_NOREPLACE);
    for (unsigned n = 1; r != 0 && errno == EEXIST && n < TRASH_NAMES_MAX; n++) {
        snprintf(name, sizeof name, "%s.%u", id->text, n);
        r = renameat2(parent, id->text, p->trash, name, RENAME_NOREPLACE);
    }
    return r;
}

int pool_discard_volume(struct pool *p, int parent, const struct volume_id *id, struct err *err)
{
    int r = pool_touch(p, err);
    if (r < 0)
        return r;
    if (move_to_trash(p, parent, id) != 0)
        return err_sys(err, errno, "cannot move the volume '%s' to trash", id->text);
    ledger_remove(&p->ledger, id);
    return 0;
}

int pool_recover(struct pool *p, struct err *err)
{
    int r = pool_lock(p, err);
    if (r < 0)
        return r;
    for (size_t i = p->ledger.count; r == 0 && i-- > 0;) {
        const struct ledger_entry e = p->ledger.entries[i];
        auto_directory_lock h = {.dir = -1};
        /* Ready volumes are not in making/, and a locked one has a live maker. */
        if (directory_lock_take(p, p->making, e.volume_id.text, &h, ERR_IGNORED) < 0)
            continue;
        struct disk d = {.backend = e.backend, .dir = h.dir, .path = h.path};
        r = disk_detach(&d, err);
        if (r == 0)
            r = pool_discard_volume(p, p->making, &e.volume_id, err);
        if (r < 0)
            err_wrap(err, "removing the half-made volume '%s'", p->ledger.entries[i].volume_id.text);
    }
    pool_unlock(p);
    return r;
}

/* ---- identity of a pool ------------------------------------------------------------------------------------------ */

const char *pool_name(const struct pool *p)
{
    return p->name;
}

const char *pool_path(const struct pool *p)
{
    return p->is_open ? p->path : p->options.path;
}

const char *pool_uuid(const struct pool *p)
{
    return p->is_open ? p->uuid : "";
}

enum spec_backend pool_backend(const struct pool *p)
{
    return p->backend;
}

const char *pool_backend_why(const struct pool *p)
{
    return p->why_backend;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static int unbacked_of(const struct pool *p, const struct ledger_entry *e, uint64_t *ret, struct err *err)
{
    auto_fd dir = -1;
    *ret = 0;
    if (e->state == LEDGER_BROKEN)
        return 0;
    int r = dir_open(e->state == LEDGER_MAKING ? p->making : p->volumes, e->volume_id.text, &dir, err);
    if (r < 0)
        return r;
    struct disk d = {.backend = e->backend,
                     .dir = dir,
                     .path = e->volume_id.text,
                     .capacity_bytes = e->capacity_bytes,
                     .project = e->project};
    return disk_unbacked(&d, ret, err);
}

static int sum_unbacked(const struct pool *p, uint64_t *ret, struct err *err)
{
    uint64_t sum = 0, bytes;
    for (size_t i = 0; i < p->ledger.count; i++) {
        int r = unbacked_of(p, &p->ledger.entries[i], &bytes, err);
        if (r < 0)
            return r;
        sum += bytes;
    }
    *ret = sum;
    return 0;
}

/* Reserved for directories, records and extents of images, so that a volume as large as all available bytes can be
 * made. */
enum { OWN_BYTES = 16 << 20 };

#define WRITE_NS (30 * NS_PER_SECOND)

static int read_free(const struct pool *p, uint64_t *ret_total, uint64_t *ret_free, struct err *err)
{
    struct statvfs fs;
    if (fstatvfs(p->dir, &fs) != 0)
        return err_sys(err, errno, "cannot read the free space of the pool '%s'", p->path);
    uint64_t total = fs.f_blocks * fs.f_frsize;
    uint64_t reserve = total / 100 * p->options.reserve_percent + OWN_BYTES;
    *ret_total = total > reserve ? total - reserve : 0;
    *ret_free = fs.f_bavail * fs.f_frsize > reserve ? fs.f_bavail * fs.f_frsize - reserve : 0;
    return 0;
}

/* Free bytes minus reserved bytes that are not allocated yet. Makers allocate without the lock: if the reserved sum
 * changed while the free space was read, measure again, or such bytes count twice or not at all. */
static int measure(const struct pool *p, uint64_t *ret_total, uint64_t *ret_available, struct err *err)
{
    enum { ATTEMPTS = 100 };
    uint64_t before, after, free_bytes;
    for (unsigned i = 0; i < ATTEMPTS; i++) {
        if (sum_unbacked(p, &before, err) < 0 || read_free(p, ret_total, &free_bytes, err) < 0 ||
            sum_unbacked(p, &after, err) < 0)
            return -(int)err->code;
        if (before == after)
            break;
    }
    uint64_t promised = max_u64(before, after);
    *ret_available = free_bytes > promised ? free_bytes - promised : 0;
    return 0;
}

int pool_available(struct pool *p, uint64_t *ret_bytes, struct err *err)
{
    uint64_t total;
    return measure(p, &total, ret_bytes, err);
}

/* ext4 becomes read-only after an error of its disk, but says so only to a write: the lock's number is written again. A
 * full disk is healthy. */
static int check_writable(struct pool *p, struct err *err)
{
    uint64_t now = clock_now_ns();
    struct err why;
    if (now < p->write_ns)
        return 0;
    int r = file_pwrite_all(p->lock_file, "lock", &p->generation, sizeof p->generation, 0, &why);
    if (r < 0 && r != -ERR_NO_SPACE) {
        err_copy(err, &why);
        return err_wrap(err, "pool '%s'", p->path);
    }
    p->write_ns = now + WRITE_NS;
    return 0;
}

int pool_usage(struct pool *p, struct pool_usage *ret, struct err *err)
{
    struct pool_usage u = {0};
    int r = pool_lock(p, err);
    if (r < 0)
        return r;
    r = check_writable(p, err);
    if (r == 0)
        r = measure(p, &u.total_bytes, &u.available_bytes, err);
    for (size_t i = 0; i < p->ledger.count; i++) {
        u.allocated_bytes += p->ledger.entries[i].capacity_bytes;
        u.volumes += p->ledger.entries[i].state != LEDGER_MAKING;
    }
    pool_unlock(p);
    if (r < 0)
        return r;
    /* A pool is one file system: all available bytes can go to one volume. */
    u.largest_bytes = u.available_bytes >= SPEC_BYTES_MIN ? u.available_bytes : 0;
    *ret = u;
    return 0;
}

/* ---- looking up -------------------------------------------------------------------------------------------------- */

void pool_add_volume_path(const struct pool *p, const struct volume_id *id, struct sbuf *ret)
{
    sbuf_addf(ret, "%s/volumes/%s", p->path, id->text);
}

static int open_volume(const struct pool *p, const struct volume_id *id, struct volume **ret, struct err *err)
{
    auto_sbuf path = SBUF(PATH_MAX);
    pool_add_volume_path(p, id, &path);
    auto_volume v = NULL;
    int r = volume_open(path.ptr, &v, err);
    if (r == -ERR_NOT_FOUND && faccessat(p->volumes, id->text, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        err_set(err, ERR_CORRUPT, "'%s' has no '" VOLUME_SPEC "'", path.ptr);
    else if (r == 0 && strcmp(v->spec->id.text, id->text) != 0)
        err_set(err, ERR_CORRUPT, "'%s/" VOLUME_SPEC "' belongs to volume '%s'", path.ptr, v->spec->id.text);
    else {
        if (r == 0)
            *ret = take(&v);
        return r;
    }
    return err_advise(err, CIS_VOLUME_RECORD_CORRUPT);
}

int pool_find_volume(struct pool *p, const struct volume_id *id, struct volume **ret, struct err *err)
{
    struct stat st;
    int r = pool_is_here(p, err);
    if (r < 0)
        return r;
    if (fstatat(p->volumes, id->text, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
        return open_volume(p, id, ret, err);
    if (volume_id_is_of_pool(id, p->uuid))
        return err_set(err, ERR_NOT_FOUND, "volume '%s' does not exist", id->text);
    return err_fail(err, ERR_CHANGED, CIS_POOL_ABSENT,
                    "volume '%s' is in pool %.*s, and the pool in '%s' is %s: its disk was replaced or wiped", id->text,
                    STR_FMT(volume_id_pool(id)), p->path, p->uuid);
}

int pool_find_volume_name(struct pool *p, struct str name, struct volume **ret, struct err *err)
{
    struct volume_id id = {0};
    int r = pool_lock(p, err);
    if (r < 0)
        return r;
    const struct ledger_entry *e = ledger_find_name(&p->ledger, name);
    if (e && e->state == LEDGER_READY)
        id = e->volume_id;
    pool_unlock(p);
    if (id.text[0])
        return open_volume(p, &id, ret, err);
    return err_set(err, ERR_NOT_FOUND, "volume '%.*s' does not exist", (int)min_u64(name.len, 100), name.ptr);
}

void pool_entries_free(struct pool_entry *own_entries, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(own_entries[i].name);
    free(own_entries);
}

int pool_list_volumes(struct pool *p, const struct volume_id *after, size_t max, struct pool_entry **ret,
                      size_t *ret_count, struct err *err)
{
    int r = pool_lock(p, err);
    if (r < 0)
        return r;
    struct pool_entry *list = xcalloc(min_u64(max, p->ledger.count) + 1, sizeof *list);
    size_t count = 0;
    for (size_t i = 0; i < p->ledger.count && count < max; i++) {
        const struct ledger_entry *e = &p->ledger.entries[i];
        if (e->state == LEDGER_MAKING || strcmp(e->volume_id.text, after->text) <= 0)
            continue;
        list[count].volume_id = e->volume_id;
        list[count].name = str_dup(str_of(e->name));
        list[count++].capacity_bytes = e->capacity_bytes;
    }
    pool_unlock(p);
    *ret = list;
    *ret_count = count;
    return 0;
}
