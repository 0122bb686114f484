/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "quota.h"
#include "util/file.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

/* ---- one volume, locked and read --------------------------------------------------------------------------------- */

struct locked_volume {
    struct directory_lock lock;
    struct spec *spec; /* owned */
};

static void locked_volume_done(struct locked_volume *o)
{
    directory_lock_release(&o->lock);
    spec_free(o->spec);
    o->spec = NULL;
}
#define auto_locked_volume auto_with(locked_volume_done) struct locked_volume

static int lock_and_read(struct pool *p, const struct volume_id *id, struct locked_volume *ret, struct err *err)
{
    int r = directory_lock_take(p, p->volumes, id->text, &ret->lock, err);
    return r < 0 ? r : volume_spec_read(ret->lock.dir, ret->lock.path, &ret->spec, err);
}

static int write_spec(const struct locked_volume *o, struct err *err)
{
    auto_mem char *text = spec_to_json(o->spec);
    return file_replace(o->lock.dir, VOLUME_SPEC, str_of(text), 0644, err);
}

/* ---- attach, detach ---------------------------------------------------------------------------------------------- */

int pool_attach_volume(struct pool *p, const struct volume_id *id, struct err *err)
{
    auto_locked_volume o = {.lock.dir = -1};
    int r = lock_and_read(p, id, &o, err);
    if (r < 0)
        return r;
    struct disk d = directory_lock_disk(&o.lock, o.spec);
    r = disk_attach(&d, err);
    return r < 0 ? err_wrap(err, "attaching the volume '%s'", o.spec->id.text) : 0;
}

int pool_set_volume_writable(struct pool *p, const struct volume_id *id, bool writable, struct err *err)
{
    auto_locked_volume o = {.lock.dir = -1};
    int r = lock_and_read(p, id, &o, err);
    if (r < 0)
        return r;
    struct disk d = directory_lock_disk(&o.lock, o.spec);
    return disk_set_writable(&d, writable, err);
}

int pool_set_volume_label(struct pool *p, const struct volume_id *id, const char *label, struct err *err)
{
    auto_locked_volume o = {.lock.dir = -1};
    int r = lock_and_read(p, id, &o, err);
    if (r < 0)
        return r;
    struct disk d = directory_lock_disk(&o.lock, o.spec);
    return disk_set_label(&d, label, err);
}

/* ---- grow -------------------------------------------------------------------------------------------------------- */

static int too_far(const struct pool *p, uint64_t more, uint64_t available, struct err *err)
{
    char have[BYTES_TEXT_MAX], asked[BYTES_TEXT_MAX];
    return err_fail(err, ERR_RANGE, CIS_VOLUME_GROW_LIMIT, "pool '%s': %s free, %s more asked", p->name,
                    bytes_text(available, have), bytes_text(more, asked));
}

static int set_capacity(struct pool *p, struct locked_volume *o, uint64_t capacity_bytes, struct err *err)
{
    struct ledger_entry *e = ledger_find(&p->ledger, &o->spec->id);
    int r = e ? pool_touch(p, err)
              : err_set(err, ERR_INTERNAL, "the volume '%s' is no longer in the pool", o->spec->id.text);
    if (r < 0)
        return r;
    uint64_t old = o->spec->capacity_bytes;
    o->spec->capacity_bytes = capacity_bytes;
    r = write_spec(o, err);
    if (r < 0)
        o->spec->capacity_bytes = old;
    else
        e->capacity_bytes = capacity_bytes;
    return r;
}

/* Record the new capacity before allocating it. A crash in between leaves a volume with less than its capacity, which
 * the next attach or grow repairs; no byte is promised twice. */
static int promise(struct pool *p, struct locked_volume *o, uint64_t capacity_bytes, struct err *err)
{
    uint64_t available = 0, more = capacity_bytes - o->spec->capacity_bytes;
    int r = pool_lock(p, err);
    if (r < 0)
        return r;
    r = pool_available(p, &available, err);
    if (r == 0 && more > available)
        r = too_far(p, more, available, err);
    if (r == 0)
        r = set_capacity(p, o, capacity_bytes, err);
    pool_unlock(p);
    return r;
}

static void take_back(struct pool *p, struct locked_volume *o, uint64_t capacity_bytes)
{
    if (pool_lock(p, ERR_IGNORED) < 0)
        return;
    /* If that fails too, too much stays reserved: wasteful, but safe. */
    if (set_capacity(p, o, capacity_bytes, ERR_IGNORED) < 0)
        p->generation = 0;
    pool_unlock(p);
}

int pool_grow_volume(struct pool *p, const struct volume_id *id, uint64_t capacity_bytes, struct err *err)
{
    auto_locked_volume o = {.lock.dir = -1};
    int r = lock_and_read(p, id, &o, err);
    if (r < 0)
        return r;
    uint64_t old = o.spec->capacity_bytes;
    if (capacity_bytes > old) {
        r = promise(p, &o, capacity_bytes, err);
        if (r < 0)
            return err_wrap(err, "growing the volume '%s'", o.spec->id.text);
    }
    /* Also if the capacity is recorded already: an earlier call may have died before the disk was grown. */
    struct disk d = directory_lock_disk(&o.lock, o.spec);
    r = disk_grow(&d, err);
    if (r < 0)
        take_back(p, &o, old);
    if (r == -ERR_NO_SPACE) {
        err->code = ERR_RANGE;
        err_advise(err, CIS_VOLUME_GROW_LIMIT);
    }
    return r < 0 ? err_wrap(err, "growing the volume '%s'", o.spec->id.text) : 0;
}

/* ---- modify ------------------------------------------------------------------------------------------------------ */

int pool_modify_volume(struct pool *p, const struct volume_id *id, const struct pool_volume_change *changes,
                       size_t count, struct err *err)
{
    auto_locked_volume o = {.lock.dir = -1};
    int r = lock_and_read(p, id, &o, err);
    if (r == 0)
        o.spec->in_cluster = p->options.in_cluster;
    for (size_t i = 0; r == 0 && i < count; i++)
        r = spec_modify(o.spec, changes[i].key, changes[i].value, err);
    return r < 0 ? r : write_spec(&o, err);
}

int pool_follow_volume_order(struct pool *p, const struct volume_id *id, const struct spec *order, struct err *err)
{
    auto_locked_volume o = {.lock.dir = -1};
    int r = lock_and_read(p, id, &o, err);
    if (r < 0)
        return r;
    spec_follow(o.spec, order);
    return write_spec(&o, err);
}

/* ---- restore ----------------------------------------------------------------------------------------------------- */

#define DAMAGED VOLUME_SPEC ".damaged"

/* A volume with a damaged or missing volume.json still has its data and its reservation. Its order has the
 * specification; its directory shows the backend. The image's length is the last capacity: a growth that the order does
 * not have yet is kept. */
static int look_at_disk(const struct directory_lock *h, struct spec *made, struct err *err)
{
    struct stat st;
    uint32_t project = 0;
    if (fstatat(h->dir, VOLUME_IMAGE, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        made->backend = BACKEND_LOOP;
        made->capacity_bytes = max_u64(made->capacity_bytes, (uint64_t)st.st_size);
        return 0;
    }
    made->backend = BACKEND_QUOTA;
    if (quota_project_of(h->dir, &project, err) == 0 && project != 0) {
        made->project = project;
        return 0;
    }
    return err_fail(err, ERR_CORRUPT, CIS_VOLUME_RECORD_CORRUPT,
                    "'%s' has neither '" VOLUME_IMAGE "' nor a limited '" VOLUME_DATA "'", h->path);
}

/* Keep the damaged file for inspection. After a crash in between, volume.json is missing, and the same call repairs
 * it. */
static int replace_spec(struct pool *p, const struct directory_lock *h, const struct spec *made, struct err *err)
{
    auto_mem char *text = spec_to_json(made);
    if (renameat(h->dir, VOLUME_SPEC, h->dir, DAMAGED) != 0 && errno != ENOENT)
        return err_sys(err, errno, "cannot move '%s/%s' aside", h->path, VOLUME_SPEC);
    int r = pool_lock(p, err);
    if (r < 0)
        return r;
    r = pool_touch(p, err);
    if (r == 0)
        r = file_replace(h->dir, VOLUME_SPEC, str_of(text), 0644, err);
    if (r == 0) {
        ledger_remove(&p->ledger, &made->id);
        ledger_add(&p->ledger, made, LEDGER_READY);
    }
    pool_unlock(p);
    return r;
}

int pool_restore_volume(struct pool *p, const struct spec *known, struct err *err)
{
    auto_directory_lock h = {.dir = -1};
    auto_volume there = NULL;
    struct err damage;
    struct spec made = *known; /* a shallow copy: the strings stay the caller's */
    int r = directory_lock_take(p, p->volumes, known->id.text, &h, err);
    if (r < 0)
        return r;
    int state = pool_find_volume(p, &known->id, &there, &damage);
    if (state != -ERR_CORRUPT)
        return state < 0 ? err_copy(err, &damage) : 0;
    r = look_at_disk(&h, &made, err);
    if (r == 0)
        r = replace_spec(p, &h, &made, err);
    return r < 0 ? err_wrap(err, "restoring the record of the volume '%s'", known->id.text) : 0;
}

/* ---- delete ------------------------------------------------------------------------------------------------------ */

/* A volume with an unreadable volume.json can be deleted too: the image in its directory shows the backend. */
static struct disk disk_of_directory(const struct directory_lock *h)
{
    auto_spec spec = NULL;
    if (volume_spec_read(h->dir, h->path, &spec, ERR_IGNORED) == 0)
        return directory_lock_disk(h, spec);
    struct stat st;
    bool image = fstatat(h->dir, VOLUME_IMAGE, &st, AT_SYMLINK_NOFOLLOW) == 0;
    return (struct disk){.backend = image ? BACKEND_LOOP : BACKEND_AUTO, .dir = h->dir, .path = h->path};
}

static int detach_and_discard(struct pool *p, const struct volume_id *id, struct err *err)
{
    auto_directory_lock h = {.dir = -1};
    int r = directory_lock_take(p, p->volumes, id->text, &h, err);
    if (r < 0)
        return r;
    struct disk d = disk_of_directory(&h);
    r = disk_detach(&d, err);
    if (r == 0)
        r = pool_lock(p, err);
    if (r < 0)
        return r;
    r = pool_discard_volume(p, p->volumes, id, err);
    pool_unlock(p);
    return r;
}

int pool_delete_volume(struct pool *p, const struct volume_id *id, struct err *err)
{
    int r = detach_and_discard(p, id, err);
    if (r < 0 && r != -ERR_NOT_FOUND)
        return err_wrap(err, "deleting the volume '%s'", id->text);
    /* Also if the volume is gone: an earlier call may have died after the removal. Sync the new name first: a
     * power cut between the two must not lose both. */
    r = dir_sync(p->trash, "trash", err);
    return r < 0 ? r : dir_sync(p->volumes, "volumes", err);
}

/* Removes one directory of the trash. */
static int remove_from_trash(struct pool *p, const char *id, struct err *err)
{
    auto_directory_lock h = {.dir = -1};
    int r = directory_lock_take(p, p->trash, id, &h, err);
    if (r == -ERR_NOT_FOUND || r == -ERR_PENDING)
        return 0; /* another process removes it */
    if (r < 0)
        return r;
    struct disk d = disk_of_directory(&h);
    r = disk_detach(&d, err);
    if (r == 0)
        r = disk_release(&d, err);
    return r < 0 ? r : dir_remove(p->trash, id, err);
}

int pool_empty_trash(struct pool *p, struct err *err)
{
    /* Another process may have died since we opened the pool. */
    int r = pool_recover(p, err);
    if (r < 0)
        return r;
    auto_dir d = dir_stream(openat(p->trash, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!d)
        return err_sys(err, errno, "cannot list the trash of the pool '%s'", p->path);
    struct dirent *e;
    struct err one;
    int first = 0;
    while ((e = dir_next(d)) != NULL) {
        r = remove_from_trash(p, e->d_name, &one);
        if (r < 0 && first == 0)
            first = err_copy(err, &one);
    }
    if (errno && first == 0)
        first = err_sys(err, errno, "cannot list the trash of the pool '%s'", p->path);
    return first;
}
