/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/label.h"
#include "pool/mount.h"
#include "pool/record.h"
#include "private.h"
#include "staging_mount.h"
#include "util/log.h"
#include <sys/stat.h>

/* ---- stage ------------------------------------------------------------------------------------------------------- */

/* A bind mount if requested, or if FUSE is not needed: read-only, hydrated, nothing to export. */
static bool wants_fuse(const struct volume *v, const struct record *want)
{
    if (v->spec->params.access != ACCESS_AUTO)
        return v->spec->params.access == ACCESS_FUSE;
    return !want->read_only || want->has_group || want->context || v->spec->export.uri.text || !volume_is_hydrated(v);
}

int driver_check_view(const struct volume_id *id, const struct record *have, const struct csi_mount *q, struct err *err)
{
    struct str has = have->context ? str_of(have->context) : STR("none"),
               wants = q->context.len ? q->context : STR("none");
    if (have->has_group != q->has_group || have->group != q->group)
        return err_fail(err, ERR_BUSY, CIS_FSGROUP_DIFFERS, "volume '%s': staged already for another group", id->text);
    if (!label_eq(has, wants))
        return err_fail(err, ERR_BUSY, CIS_CONTEXT_DIFFERS,
                        "volume '%s': already staged with SELinux label '%.*s', but the pod has '%.*s'", id->text,
                        STR_FMT(has), STR_FMT(wants));
    return 0;
}

/* An existing staging mount stays: an equal request succeeds, any other one is refused. */
static int check_staged(const struct volume_id *id, const struct record *have, const struct csi_mount *q,
                        struct err *err)
{
    bool mounted = false;
    int r = have->staged ? mount_is_at(have->staged, &mounted, err) : 0;
    if (r < 0 || !mounted)
        return r;
    if (!record_is_staged_at(have, q->staging_path))
        return err_set(err, ERR_BUSY, "volume '%s': staged already at '%s'", id->text, have->staged);
    r = driver_check_view(id, have, q, err);
    if (r == 0 && have->read_only != q->read_only)
        r = err_set(err, ERR_EXISTS, "volume '%s': staged already %s", id->text,
                    have->read_only ? "read-only" : "for writing");
    return r;
}

/* Keeps the targets of an earlier staging at this path: some may still be mounted. */
static int carry_over(const struct record *have, struct record *want, struct err *err)
{
    int r = 0;
    want->writes = have->writes;
    want->release = have->release;
    want->unpublished_ns = have->unpublished_ns;
    if (!record_is_staged_at(have, want->staged))
        return 0;
    for (size_t i = 0; r == 0 && i < have->target_count; i++)
        r = record_add(want, have->targets[i].path, have->targets[i].read_only, err);
    return r;
}

/* Where the volume is mounted: see RECORD_BIND. An existing mount stays where it is. */
static int choose_place(const struct volume *v, const struct record *have, bool mounted, struct record *want,
                        struct err *err)
{
    char *place;
    if (mounted) {
        want->fuse = have->fuse;
        place = str_dup(str_of(have->staged));
    } else if (want->fuse || v->spec->backend != BACKEND_LOOP) {
        return 0;
    } else {
        place = str_dupf("%s" RECORD_BIND, want->staged);
    }
    free(want->staged);
    want->staged = place;
    if (!mounted && mkdir(place, 0750) != 0 && errno != EEXIST)
        return err_sys(err, errno, "cannot create the directory '%s'", place);
    return 0;
}

int driver_check_without_record(const struct volume_id *id, const char *path, bool *ret_mounted, struct err *err)
{
    int r = mount_is_at(path, ret_mounted, err);
    if (r < 0 || *ret_mounted)
        return r;
    return err_fail(err, ERR_BUSY, CIS_MOUNTS_RECORD_CORRUPT,
                    "volume '%s': mounted, and its record of mounts is corrupt", id->text);
}

static int check_staged_without_record(const struct volume_id *id, const char *path, struct err *err)
{
    auto_mem char *bind = str_dupf("%s" RECORD_BIND, path);
    bool mounted;
    int r = mount_is_at(bind, &mounted, err);
    return r < 0 || mounted ? r : driver_check_without_record(id, path, &mounted, err);
}

static int check_bind(const struct volume *v, const struct record *want, struct err *err)
{
    const struct volume_id *id = &v->spec->id;
    if (want->fuse || want->read_only)
        return 0;
    if (want->has_group)
        return err_fail(err, ERR_INVALID, CIS_FSGROUP_UNSUPPORTED,
                        "volume '%s': fsGroup needs access: fuse, a bind mount cannot show it", id->text);
    if (v->spec->backend != BACKEND_QUOTA)
        return 0;
    return err_fail(err, ERR_INVALID, CIS_BIND_LEAVES_QUOTA,
                    "volume '%s': a pod that writes to a bind mount could leave its project quota", id->text);
}

static int stage(struct driver *d, struct pool *p, const struct volume *v, const struct csi_mount *q,
                 struct record *want, struct err *err)
{
    const struct volume_id *id = &v->spec->id;
    auto_record have = {0};
    auto_fd mount = -1;
    bool mounted = false;
    int r = record_of(v, &have, err);
    if (r == 0 && have.is_lost)
        return check_staged_without_record(id, want->staged, err);
    if (r == 0)
        r = check_staged(id, &have, q, err);
    if (r < 0)
        return r;
    want->fuse = wants_fuse(v, want);
    r = check_bind(v, want, err);
    if (r == 0 && record_is_staged_at(&have, want->staged))
        r = mount_is_at(have.staged, &mounted, err);
    if (r == 0 && !mounted)
        r = driver_admit(d, v, &have, err);
    if (r == 0)
        r = carry_over(&have, want, err);
    if (r == 0)
        r = choose_place(v, &have, mounted, want, err);
    if (r == 0)
        r = record_write(v->dir, want, err);
    if (r == 0)
        r = staging_mount_open(d, p, v, want, &mount, err);
    return r < 0 ? err_wrap(err, "staging volume '%s'", id->text) : 0;
}

static int check_directory(const char *path, struct err *err)
{
    struct stat st;
    /* A dead FUSE mount returns other errors, and is mounted again. */
    if (stat(path, &st) != 0 && errno == ENOENT)
        return err_set(err, ERR_BUSY, "staging_target_path '%s': not found: the caller must create it", path);
    return 0;
}

int driver_stage(void *ctx, const struct volume_id *id, const struct csi_mount *q, struct err *err)
{
    struct driver *d = ctx;
    auto_volume_lock lock = NO_VOLUME_LOCK;
    auto_volume v = NULL;
    auto_record want = {.read_only = q->read_only, .has_group = q->has_group, .group = q->group};
    struct pool *p;
    int r = driver_lock_volume(d, id, &lock, &p, &v, err);
    if (r == 0)
        r = check_directory(q->staging_path, err);
    want.staged = str_dup(str_of(q->staging_path));
    want.context = q->context.len ? str_dup(q->context) : NULL;
    if (r == 0)
        r = stage(d, p, v, q, &want, err);
    if (r == 0)
        driver_volume_changed(d, v);
    return r;
}

/* ---- unstage ----------------------------------------------------------------------------------------------------- */

/* Also for a volume that was lost with its disk: its dead mount must not block the pod's end. */
static int clear(struct driver *d, const struct volume_id *id, const char *path, bool fuse, struct err *err)
{
    auto_mem char *bind = str_dupf("%s" RECORD_BIND, path);
    int r = fuse ? driver_keeper_unmount(d->keeper, id, path, err) : 0;
    if (r == 0)
        r = mount_unmount(path, DRIVER_UNMOUNT_NS, true, err);
    if (r == 0)
        r = mount_unmount(bind, DRIVER_UNMOUNT_NS, true, err);
    if (r == 0 && rmdir(bind) != 0 && errno != ENOENT)
        r = err_sys(err, errno, "cannot remove the directory '%s'", bind);
    return r;
}

static int unstage(struct driver *d, const struct volume *v, const struct record *have, const char *path,
                   struct err *err)
{
    if (!have->is_lost && !record_is_staged_at(have, path))
        return 0;
    int r = driver_check_unpublished(&v->spec->id, have, err);
    if (r == 0)
        r = clear(d, &v->spec->id, path, have->fuse || have->is_lost, err);
    if (r < 0)
        return err_wrap(err, "unstaging volume '%s'", v->spec->id.text);
    struct record left = {.writes = have->writes, .release = have->release, .unpublished_ns = have->unpublished_ns};
    /* A pod that ended without being unpublished, for example with its machine, may also have written. */
    if (have->is_lost || (have->writes > 0 && !have->unpublished_ns))
        left.unpublished_ns = driver_unpublished_now_ns(v);
    return driver_record_unmounted(v, &left, err);
}

int driver_unstage(void *ctx, const struct volume_id *id, const char *path, struct err *err)
{
    struct driver *d = ctx;
    auto_volume_lock lock = NO_VOLUME_LOCK;
    auto_volume v = NULL;
    auto_record have = {0};
    struct pool *p;
    int r = id ? driver_lock_volume(d, id, &lock, &p, &v, err) : -(int)err->code;
    if (r == 0)
        r = record_of(v, &have, err);
    if (r < 0 && driver_may_unmount_unrecorded(d, err)) {
        log_err(LOG_INFO, "unstaging without a record", err, "path", path, NULL);
        return clear(d, id, path, id != NULL, err);
    }
    if (r == 0)
        r = unstage(d, v, &have, path, err);
    if (r == 0)
        driver_volume_changed(d, v);
    return r;
}
