/* SPDX-License-Identifier: Apache-2.0 */
/* Creates a volume in making/, where its directory already counts as reserved space; a rename completes it. After
 * a crash before that rename, pool_open() removes the directory: no caller has its id yet. */
#include "pool/record.h"
#include "private.h"
#include "quota.h"
#include "util/clock.h"
#include "util/file.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

static int check_want(const struct pool *p, const struct spec *want, struct err *err)
{
    if (!want->name || !want->name[0])
        return err_set(err, ERR_INVALID, "a volume needs a name");
    /* JSON cannot store it, and a repeated call finds its volume by name. */
    if (!str_is_utf8(str_of(want->name)))
        return err_set(err, ERR_INVALID, "the name of a volume must be UTF-8");
    if (want->capacity_bytes < SPEC_BYTES_MIN) {
        err_set(err, ERR_RANGE, "volume '%s': %llu bytes are too few", want->name,
                (unsigned long long)want->capacity_bytes);
        return err_advise(err, CIS_VOLUME_SIZE, SPEC_BYTES_MIN);
    }
    if (strcmp(want->params.pool, p->name) != 0)
        return err_set(err, ERR_INVALID, "the volume '%s' asks for the pool '%s', and this is '%s'", want->name,
                       want->params.pool, p->name);
    if (want->id.text[0] && !want->takes_over && !volume_id_is_of_pool(&want->id, p->uuid))
        return err_fail(err, ERR_CHANGED, CIS_POOL_ABSENT,
                        "volume '%s' has the id '%s', and pool '%s' is %s: its disk was replaced or wiped", want->name,
                        want->id.text, p->name, p->uuid);
    /* CreateVolume has checked this, but api_volume_spec() has not: it also reads the orders of existing volumes, which
     * another version may have written. */
    return spec_check_served(want, err);
}

/* ---- existing volumes -------------------------------------------------------------------------------------------- */

static int differs(const struct spec *want, const char *what, struct err *err)
{
    return err_fail(err, ERR_EXISTS, CIS_VOLUME_EXISTS, "volume '%s' exists with another %s", want->name, what);
}

static int open_same(const struct pool *p, const struct volume_id *id, const struct spec *want, uint64_t limit_bytes,
                     struct volume **ret, struct err *err)
{
    auto_volume v = NULL;
    auto_sbuf path = SBUF(PATH_MAX);
    pool_add_volume_path(p, id, &path);
    int r = volume_open(path.ptr, &v, err);
    if (r < 0)
        return r;
    if (v->spec->capacity_bytes < want->capacity_bytes || (limit_bytes && v->spec->capacity_bytes > limit_bytes))
        return differs(want, "capacity", err);
    const char *difference = spec_difference(v->spec, want);
    if (difference)
        return differs(want, difference, err);
    *ret = take(&v);
    return 0;
}

/* A process that died leaves its directory unlocked: remove it, and the name is free. */
static int clear_half_made(struct pool *p, const struct ledger_entry *e, struct err *err)
{
    auto_directory_lock h = {.dir = -1};
    struct disk d = {.backend = e->backend};
    int r = directory_lock_take(p, p->making, e->volume_id.text, &h, err);
    if (r < 0)
        return r;
    d.dir = h.dir;
    d.path = h.path;
    r = disk_detach(&d, err);
    return r < 0 ? r : pool_discard_volume(p, p->making, &e->volume_id, err);
}

/* ---- the promise ------------------------------------------------------------------------------------------------- */

static int check_space(struct pool *p, uint64_t bytes, struct err *err)
{
    uint64_t available;
    char have[BYTES_TEXT_MAX], asked[BYTES_TEXT_MAX];
    int r = pool_available(p, &available, err);
    if (r < 0 || bytes <= available)
        return r;
    return err_fail(err, ERR_NO_SPACE, CIS_POOL_FULL, "pool '%s': %s free (%llu bytes), %s asked", p->name,
                    bytes_text(available, have), (unsigned long long)available, bytes_text(bytes, asked));
}

/* Not flushed: losing a reservation in a power cut harms no caller yet. */
static int write_spec(int dir, const struct spec *made, struct err *err)
{
    auto_mem char *text = spec_to_json(made);
    auto_fd fd = openat(dir, VOLUME_SPEC, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_sys(err, errno, "cannot create '%s'", VOLUME_SPEC);
    return file_write_all(fd, VOLUME_SPEC, text, strlen(text), err);
}

static int make_directory(struct pool *p, const struct spec *made, struct directory_lock *ret, struct err *err)
{
    if (mkdirat(p->making, made->id.text, 0700) != 0)
        return err_sys(err, errno, "cannot create the directory of the volume '%s'", made->name);
    int r = directory_lock_take(p, p->making, made->id.text, ret, err);
    if (r == 0)
        r = write_spec(ret->dir, made, err);
    if (r < 0 && pool_discard_volume(p, p->making, &made->id, ERR_IGNORED) < 0)
        p->generation = 0; /* the directory is still there: the next call must read the ledger again */
    return r;
}

static int reserve(struct pool *p, struct spec *made, struct directory_lock *ret, struct err *err)
{
    int r = check_space(p, made->capacity_bytes, err);
    uint32_t project = 0;
    if (r == 0 && made->backend == BACKEND_QUOTA)
        r = quota_project_new(p->dir, &project, err);
    if (r == 0)
        r = pool_touch(p, err);
    if (r < 0)
        return r;
    if (!made->id.text[0])
        volume_id_make(p->uuid, &made->id);
    made->project = project;
    r = make_directory(p, made, ret, err);
    if (r == 0)
        ledger_add(&p->ledger, made, LEDGER_MAKING);
    return r;
}

/* Under the lock: finds the volume of that name (*ret_existing), or reserves a new one (*ret_lock). */
static int find_or_reserve(struct pool *p, struct spec *made, uint64_t limit_bytes, struct volume **ret_existing,
                           struct directory_lock *ret_lock, struct err *err)
{
    int r = pool_lock(p, err);
    if (r < 0)
        return r;
    const struct ledger_entry *e = ledger_find_name(&p->ledger, str_of(made->name));
    if (e && e->state == LEDGER_READY) {
        r = open_same(p, &e->volume_id, made, limit_bytes, ret_existing, err);
    } else {
        if (e)
            r = clear_half_made(p, e, err);
        if (r == 0)
            r = reserve(p, made, ret_lock, err);
    }
    pool_unlock(p);
    return r;
}

/* ---- the making -------------------------------------------------------------------------------------------------- */

static int flush_spec(const struct directory_lock *h, struct err *err)
{
    auto_fd fd = openat(h->dir, VOLUME_SPEC, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        return err_sys(err, errno, "cannot flush '%s/%s'", h->path, VOLUME_SPEC);
    return dir_sync(h->dir, h->path, err);
}

static int commit(struct pool *p, const struct volume_id *id, struct err *err)
{
    int r = pool_lock(p, err);
    if (r < 0)
        return r;
    struct ledger_entry *e = ledger_find(&p->ledger, id);
    r = e ? pool_touch(p, err) : err_set(err, ERR_INTERNAL, "the volume '%s' is no longer in making/", id->text);
    if (r == 0 && renameat2(p->making, id->text, p->volumes, id->text, RENAME_NOREPLACE) != 0)
        r = err_sys(err, errno, "cannot complete the volume '%s'", id->text);
    if (r == 0)
        e->state = LEDGER_READY;
    pool_unlock(p);
    return r;
}

static int finish(struct pool *p, const struct spec *made, struct directory_lock *h, int *ret_parent, struct err *err)
{
    struct disk d = directory_lock_disk(h, made);
    int r = disk_make(&d, err);
    /* Sync everything before the rename that makes it a volume. It has a mounts.json from the start, so that a
     * missing one later means a lost one. */
    if (r == 0)
        r = record_write(h->dir, &(struct record){0}, err);
    if (r == 0)
        r = flush_spec(h, err);
    if (r == 0)
        r = commit(p, &made->id, err);
    if (r < 0)
        return r;
    *ret_parent = p->volumes;
    r = directory_lock_moved(p, p->volumes, made->id.text, h, err);
    if (r < 0)
        return r;
    d = directory_lock_disk(h, made);
    r = disk_attach(&d, err);
    if (r == 0)
        r = dir_sync(p->making, "making", err);
    return r;
}

/* Move a failed volume to the trash, so that it reserves nothing. If that fails, pool_open() moves it later. */
static void undo(struct pool *p, const struct spec *made, const struct directory_lock *h, int parent)
{
    struct disk d = directory_lock_disk(h, made);
    if (disk_detach(&d, ERR_IGNORED) < 0 || pool_lock(p, ERR_IGNORED) < 0)
        return;
    if (pool_discard_volume(p, parent, &made->id, ERR_IGNORED) < 0)
        p->generation = 0; /* the ledger and the directories may differ now: read again */
    pool_unlock(p);
}

static int make(struct pool *p, const struct spec *made, struct directory_lock *h, struct volume **ret, struct err *err)
{
    int parent = p->making;
    int r = finish(p, made, h, &parent, err);
    if (r < 0) {
        undo(p, made, h, parent);
        return err_wrap(err, "making the volume '%s'", made->name);
    }
    return volume_open(h->path, ret, err);
}

/* A repeated call may come before the first one synced the rename, or after a restart of the node. */
static int confirm(struct pool *p, struct volume *own_v, struct volume **ret, struct err *err)
{
    auto_volume v = own_v;
    int r = pool_attach_volume(p, &v->spec->id, err);
    if (r < 0)
        return r;
    *ret = take(&v);
    return 0;
}

/* The owner of a file may change its project id, and so leave the quota. A mount process refuses that; a bind mount
 * cannot. An image is a limit for any user. */
static int choose_backend(const struct pool *p, struct spec *made, struct err *err)
{
    made->backend = p->backend;
    if (made->backend != BACKEND_QUOTA || made->params.access != ACCESS_BIND)
        return 0;
    made->backend = BACKEND_LOOP;
    if (p->has_loop)
        return 0;
    return err_fail(err, ERR_INVALID, CIS_BIND_LEAVES_QUOTA,
                    "volume '%s': access: bind needs an image, and the pool '%s' has no loop devices", made->name,
                    p->name);
}

static int create_once(struct pool *p, const struct spec *want, uint64_t limit_bytes, struct volume **ret,
                       struct err *err)
{
    auto_directory_lock h = {.dir = -1};
    struct volume *existing = NULL;
    /* A shallow copy: the strings stay the caller's, and only the new fields differ. */
    struct spec made = *want;
    made.created_ns = clock_wall_ns();
    int r = choose_backend(p, &made, err);
    if (r == 0)
        r = find_or_reserve(p, &made, limit_bytes, &existing, &h, err);
    if (r == 0)
        r = existing ? confirm(p, existing, ret, err) : make(p, &made, &h, ret, err);
    return r < 0 ? r : dir_sync(p->volumes, "volumes", err);
}

int pool_create_volume(struct pool *p, const struct spec *want, uint64_t limit_bytes, struct volume **ret,
                       struct err *err)
{
    struct volume *v = NULL;
    int r = pool_is_here(p, err);
    if (r == 0)
        r = check_want(p, want, err);
    if (r < 0)
        return r;
    r = create_once(p, want, limit_bytes, &v, err);
    /* Deleted volumes may still occupy all of the missing space. */
    if (r == -ERR_NO_SPACE && pool_empty_trash(p, ERR_IGNORED) == 0)
        r = create_once(p, want, limit_bytes, &v, err);
    if (r < 0) {
        volume_close(v);
        return r;
    }
    *ret = v;
    return 0;
}
