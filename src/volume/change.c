/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"
#include "util/file.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

/* ---- one volume, held and read ----------------------------------------------------------------------------------- */

struct opened {
    struct held held;
    struct spec *spec; /* owned */
};

static void opened_done(struct opened *o)
{
    held_done(&o->held);
    spec_free(o->spec);
    o->spec = NULL;
}
#define auto_opened auto_with(opened_done) struct opened

static int read_spec(const struct held *h, struct spec **ret, struct err *err)
{
    auto_mem char *text = NULL;
    char what[PATH_MAX + 16];
    size_t len;
    int r = file_read(h->dir, VOLUME_SPEC, SPEC_JSON_MAX, &text, &len, err);
    snprintf(what, sizeof what, "'%s/%s'", h->path, VOLUME_SPEC);
    return r < 0 ? r : spec_from_json((struct str){text, len}, what, ret, err);
}

static int open_held(struct space *s, struct str id, struct opened *ret, struct err *err)
{
    if (!spec_id_is_valid(id))
        return err_set(err, ERR_NOT_FOUND, "there is no volume '%.*s'", (int)min_u64(id.len, 100),
                       id.len ? id.ptr : "");
    auto_mem char *name = str_dup(id);
    int r = held_open(s, s->volumes, name, &ret->held, err);
    return r < 0 ? r : read_spec(&ret->held, &ret->spec, err);
}

static int write_spec(const struct opened *o, struct err *err)
{
    auto_mem char *text = spec_to_json(o->spec);
    return file_replace(o->held.dir, VOLUME_SPEC, str_of(text), 0644, err);
}

/* ---- attach, detach ---------------------------------------------------------------------------------------------- */

int space_attach(struct space *s, struct str id, struct err *err)
{
    auto_opened o = {.held.dir = -1};
    int r = open_held(s, id, &o, err);
    if (r < 0)
        return r;
    struct disk d = held_disk(&o.held, o.spec);
    r = disk_attach(&d, err);
    return r < 0 ? err_wrap(err, "attaching the volume '%s'", o.spec->id) : 0;
}

int space_detach(struct space *s, struct str id, struct err *err)
{
    auto_opened o = {.held.dir = -1};
    int r = open_held(s, id, &o, err);
    if (r < 0)
        return r;
    struct disk d = held_disk(&o.held, o.spec);
    r = disk_detach(&d, err);
    return r < 0 ? err_wrap(err, "detaching the volume '%s'", o.spec->id) : 0;
}

/* ---- grow -------------------------------------------------------------------------------------------------------- */

static int too_far(const struct space *s, uint64_t more, uint64_t available, struct err *err)
{
    char have[BYTES_TEXT_MAX], asked[BYTES_TEXT_MAX];
    err_set(err, ERR_RANGE, "pool '%s': %s free, %s more asked", s->name, bytes_text(available, have),
            bytes_text(more, asked));
    return err_advise(err, 2029, "free space in the pool, or ask for less");
}

static int set_capacity(struct space *s, struct opened *o, uint64_t capacity_bytes, struct err *err)
{
    struct ledger_entry *e = ledger_find(&s->ledger, str_of(o->spec->id));
    int r = e ? space_touch(s, err) : err_set(err, ERR_INTERNAL, "the volume '%s' left the pool", o->spec->id);
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

/* The promise comes before the bytes: dying in between leaves a volume that has less than it was promised, which the
 * next attach or grow mends, and never a byte that two were promised. */
static int promise(struct space *s, struct opened *o, uint64_t capacity_bytes, struct err *err)
{
    uint64_t available = 0, more = capacity_bytes - o->spec->capacity_bytes;
    int r = space_lock(s, err);
    if (r < 0)
        return r;
    r = space_available(s, &available, err);
    if (r == 0 && more > available)
        r = too_far(s, more, available, err);
    if (r == 0)
        r = set_capacity(s, o, capacity_bytes, err);
    space_unlock(s);
    return r;
}

static void take_back(struct space *s, struct opened *o, uint64_t capacity_bytes)
{
    struct err ignored;
    if (space_lock(s, &ignored) < 0)
        return;
    /* If that fails too, too much stays promised: wasteful, and safe. */
    if (set_capacity(s, o, capacity_bytes, &ignored) < 0)
        s->generation = 0;
    space_unlock(s);
}

int space_grow(struct space *s, struct str id, uint64_t capacity_bytes, struct err *err)
{
    auto_opened o = {.held.dir = -1};
    int r = open_held(s, id, &o, err);
    if (r < 0)
        return r;
    uint64_t old = o.spec->capacity_bytes;
    if (capacity_bytes > old) {
        r = promise(s, &o, capacity_bytes, err);
        if (r < 0)
            return err_wrap(err, "growing the volume '%s'", o.spec->id);
    }
    /* Also when it is promised already: an earlier call may have died before the disk had it. */
    struct disk d = held_disk(&o.held, o.spec);
    r = disk_grow(&d, err);
    if (r < 0)
        take_back(s, &o, old);
    if (r == -ERR_NO_SPACE) {
        err->code = ERR_RANGE;
        err_advise(err, 2029, "free space in the pool, or ask for less");
    }
    return r < 0 ? err_wrap(err, "growing the volume '%s'", o.spec->id) : 0;
}

/* ---- modify ------------------------------------------------------------------------------------------------------ */

int space_modify(struct space *s, struct str id, const struct space_change *changes, size_t count, struct err *err)
{
    auto_opened o = {.held.dir = -1};
    int r = open_held(s, id, &o, err);
    if (r == 0)
        o.spec->in_cluster = s->options.in_cluster;
    for (size_t i = 0; r == 0 && i < count; i++)
        r = spec_modify(o.spec, changes[i].key, changes[i].value, err);
    return r < 0 ? r : write_spec(&o, err);
}

int space_follow(struct space *s, struct str id, const struct spec *order, struct err *err)
{
    auto_opened o = {.held.dir = -1};
    int r = open_held(s, id, &o, err);
    if (r < 0)
        return r;
    spec_follow(o.spec, order);
    return write_spec(&o, err);
}

/* ---- delete ------------------------------------------------------------------------------------------------------ */

/* A volume whose volume.json is unreadable can be deleted too: what its disk is, its folder shows. */
static struct disk disk_of_folder(const struct held *h)
{
    struct err ignored;
    auto_spec spec = NULL;
    if (read_spec(h, &spec, &ignored) == 0)
        return held_disk(h, spec);
    struct stat st;
    bool image = fstatat(h->dir, VOLUME_IMAGE, &st, AT_SYMLINK_NOFOLLOW) == 0;
    return (struct disk){.backend = image ? DISK_LOOP : DISK_AUTO, .dir = h->dir, .path = h->path};
}

enum { TRASH_NAMES_MAX = 1000 };

/* Something of the same id may lie there already: what was made of it before a first try failed. */
static int move_to_trash(const struct space *s, int parent, const char *id)
{
    char name[NAME_MAX + 1];
    int r = renameat2(parent, id, s->trash, id, RENAME_NOREPLACE);
    for (unsigned n = 1; r != 0 && errno == EEXIST && n < TRASH_NAMES_MAX; n++) {
        snprintf(name, sizeof name, "%.200s.%u", id, n);
        r = renameat2(parent, id, s->trash, name, RENAME_NOREPLACE);
    }
    return r;
}

int space_discard(struct space *s, int parent, const char *id, struct err *err)
{
    int r = space_touch(s, err);
    if (r < 0)
        return r;
    if (move_to_trash(s, parent, id) != 0)
        return err_sys(err, errno, "cannot move the volume '%s' to trash", id);
    ledger_remove(&s->ledger, str_of(id));
    return 0;
}

static int detach_and_discard(struct space *s, const char *id, struct err *err)
{
    auto_held h = {.dir = -1};
    int r = held_open(s, s->volumes, id, &h, err);
    if (r < 0)
        return r;
    struct disk d = disk_of_folder(&h);
    r = disk_detach(&d, err);
    if (r == 0)
        r = space_lock(s, err);
    if (r < 0)
        return r;
    r = space_discard(s, s->volumes, id, err);
    space_unlock(s);
    return r;
}

int space_delete(struct space *s, struct str id, struct err *err)
{
    if (!spec_id_is_valid(id))
        return 0;
    auto_mem char *name = str_dup(id);
    int r = detach_and_discard(s, name, err);
    if (r < 0 && r != -ERR_NOT_FOUND)
        return err_wrap(err, "deleting the volume '%s'", name);
    /* Also when it is gone already: the call that did it may have died before this. The new name first: a power cut
     * between the two must not leave it in neither. */
    r = dir_sync(s->trash, "trash", err);
    return r < 0 ? r : dir_sync(s->volumes, "volumes", err);
}

int space_remove(struct space *s, const char *id, struct err *err)
{
    auto_held h = {.dir = -1};
    int r = held_open(s, s->trash, id, &h, err);
    if (r == -ERR_NOT_FOUND || r == -ERR_PENDING)
        return 0; /* somebody else removes it */
    if (r < 0)
        return r;
    struct disk d = disk_of_folder(&h);
    r = disk_detach(&d, err);
    if (r == 0)
        r = disk_release(&d, err);
    return r < 0 ? r : dir_remove(s->trash, id, err);
}

int space_empty_trash(struct space *s, struct err *err)
{
    /* Another process may have died since we opened the pool. */
    int r = space_recover(s, err);
    if (r < 0)
        return r;
    auto_dir d = dir_stream(openat(s->trash, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!d)
        return err_sys(err, errno, "cannot list the trash of the pool '%s'", s->path);
    struct dirent *e;
    struct err one;
    int first = 0;
    while ((e = dir_next(d)) != NULL) {
        r = space_remove(s, e->d_name, &one);
        if (r < 0 && first == 0)
            first = err_copy(err, &one);
    }
    if (errno && first == 0)
        first = err_sys(err, errno, "cannot list the trash of the pool '%s'", s->path);
    return first;
}
