/* SPDX-License-Identifier: Apache-2.0 */
#include "export/verdict.h"
#include "pending_publish.h"
#include "pool/mount.h"
#include "pool/record.h"
#include "private.h"
#include "staging_mount.h"
#include "util/log.h"
#include <stdio.h>
#include <sys/stat.h>

/* ---- publish ----------------------------------------------------------------------------------------------------- */

struct publish_request {
    const struct volume_id *id;
    const char *staged, *target;
    bool read_only, shared;
    const struct csi_mount *mount;
};

/* Compares with the existing mounts. *ret_done: the volume is already published as requested, so nothing else is
 * checked. If a repeated call failed, the kubelet would remove a working mount. A dead mount is published again. */
static int check_targets(const struct record *have, const struct publish_request *w, bool *ret_done, struct err *err)
{
    *ret_done = false;
    for (size_t i = 0; i < have->target_count; i++) {
        bool mounted;
        int r = mount_is_at(have->targets[i].path, &mounted, err);
        if (r < 0)
            return r;
        if (!mounted)
            continue;
        bool same = strcmp(have->targets[i].path, w->target) == 0;
        if (same && have->targets[i].read_only != w->read_only)
            return err_set(err, ERR_EXISTS, "volume '%s': published already at '%s' %s", w->id->text, w->target,
                           w->read_only ? "for writing" : "read-only");
        if (!same && !w->shared)
            return err_set(err, ERR_BUSY, "volume '%s': its access mode allows one writer, and it is published at '%s'",
                           w->id->text, have->targets[i].path);
        bool dead = false;
        r = same ? staging_mount_is_dead(w->target, &dead, err) : 0;
        if (r < 0)
            return r;
        *ret_done |= same && !dead;
    }
    return 0;
}

static int check_staged(const struct record *have, const struct publish_request *w, struct err *err)
{
    if (!w->staged[0])
        return err_set(err, ERR_BUSY, "volume '%s': staging_target_path is missing: stage the volume first",
                       w->id->text);
    if (!record_is_staged_at(have, w->staged))
        return err_set(err, ERR_BUSY, "volume '%s': not staged at '%s'", w->id->text, w->staged);
    if (have->read_only && !w->read_only)
        return err_set(err, ERR_BUSY, "volume '%s': staged read-only", w->id->text);
    return driver_check_view(w->id, have, w->mount, err);
}

static int make_target(const char *path, struct err *err)
{
    if (mkdir(path, 0750) != 0 && errno != EEXIST)
        return err_sys(err, errno, "cannot create the directory '%s'", path);
    return 0;
}

/* Removes entries of pods that were never unpublished (a reboot, a failed mount): they would keep the volume
 * published and delay its export. */
static int drop_unmounted(struct record *have, struct err *err)
{
    for (size_t i = have->target_count; i-- > 0;) {
        bool mounted;
        int r = mount_is_at(have->targets[i].path, &mounted, err);
        if (r < 0)
            return r;
        if (!mounted)
            record_remove(have, have->targets[i].path);
    }
    return 0;
}

/* The entry is written before the mount: an entry without a mount is harmless. Without an entry, a mounted volume
 * could be deleted, and its writes would not void an older verdict. A mount that is still at the target is dead,
 * see check_targets(). */
static int publish(struct driver *d, struct pool *p, const struct volume *v, struct record *have,
                   const struct publish_request *w, struct err *err)
{
    auto_fd mount = -1;
    int r = staging_mount_open(d, p, v, have, &mount, err);
    if (r == 0)
        r = mount_unmount(w->target, 0, true, err);
    if (r == 0)
        r = drop_unmounted(have, err);
    if (r == 0)
        r = record_add(have, w->target, w->read_only, err);
    if (!w->read_only)
        record_count_write(have);
    if (!w->read_only && v->spec->export.uri.text)
        verdict_reserve(v->dir);
    have->unpublished_ns = 0;
    if (r == 0)
        r = record_write(v->dir, have, err);
    if (r == 0)
        r = make_target(w->target, err);
    if (r == 0)
        r = mount_bind(mount, "", w->target, w->read_only, err);
    return r < 0 ? err_wrap(err, "publishing volume '%s'", w->id->text) : 0;
}

/* *ret_done: nothing is left to do. */
static int check_existing(struct driver *d, const struct volume *v, const struct publish_request *w, struct record *ret,
                          bool *ret_done, struct err *err)
{
    int r = record_of(v, ret, err);
    if (r == 0 && ret->is_lost)
        return driver_check_without_record(w->id, w->target, ret_done, err);
    if (r == 0)
        r = check_targets(ret, w, ret_done, err);
    if (r == 0 && !*ret_done)
        r = driver_admit(d, v, ret, err);
    if (r == 0 && !*ret_done)
        r = check_staged(ret, w, err);
    return r;
}

int driver_publish(void *ctx, struct rpc_call *call, const struct volume_id *id, const struct csi_mount *q,
                   struct err *err)
{
    struct driver *d = ctx;
    auto_volume v = NULL;
    auto_volume_lock lock = NO_VOLUME_LOCK;
    auto_record before = {0}, have = {0};
    auto_pending_publish pending = {0};
    struct pool *p;
    struct publish_request w = {.id = id,
                                .staged = q->staging_path,
                                .target = q->target_path,
                                .read_only = q->read_only,
                                .shared = q->is_shared,
                                .mount = q};
    bool done;
    pending_publish_begin(&pending, id, w.target);
    int r = driver_find(d, id, &p, &v, err);
    if (r == 0)
        r = check_existing(d, v, &w, &before, &done, err);
    if (r < 0 || done)
        return r;
    /* The volume is not locked during the wait, so that it can be released: check again with the lock. */
    r = pending_publish_wait(d, call, v, &pending, err);
    if (r == 0)
        r = volume_lock_take(&d->locks, id->text, &lock, err);
    if (r == 0)
        r = volume_lock_file(&lock, v->dir, v->path, err);
    if (r == 0)
        r = pending_publish_check(&pending, err);
    if (r == 0)
        r = check_existing(d, v, &w, &have, &done, err);
    if (r < 0 || done)
        return r;
    r = publish(d, p, v, &have, &w, err);
    if (r == 0)
        driver_volume_changed(d, v);
    return r;
}

/* ---- unpublish --------------------------------------------------------------------------------------------------- */

static int remove_target(const char *path, struct err *err)
{
    if (rmdir(path) == 0 || errno == ENOENT)
        return 0;
    if (errno == ENOTDIR && unlink(path) == 0)
        return 0;
    return err_sys(err, errno, "cannot remove the directory '%s'", path);
}

/* The last pod is gone: export its files while the volume waits for the next pod, or for its release. */
static void export_now(struct driver *d, const struct volume *v)
{
    struct err err;
    struct driver_job_view job;
    int r = driver_request_job(d, v, JOB_EXPORT_UNPUBLISH, true, &job, &err);
    if (r < 0)
        log_err(LOG_WARN, "the export after unpublishing cannot begin", &err, "volume", v->spec->id.text, NULL);
}

static int clear_target(const char *target, struct err *err)
{
    int r = mount_unmount(target, DRIVER_UNMOUNT_NS, true, err);
    return r < 0 ? r : remove_target(target, err);
}

static int unpublish(struct driver *d, const struct volume *v, struct record *have, const char *target, struct err *err)
{
    int r = clear_target(target, err);
    bool was_known = r == 0 && record_target(have, target);
    if (was_known)
        r = drop_unmounted(have, err);
    if (r < 0)
        return err_wrap(err, "unpublishing volume '%s'", v->spec->id.text);
    if (!was_known)
        return 0;
    if (have->target_count == 0)
        have->unpublished_ns = driver_unpublished_now_ns(v);
    r = driver_record_unmounted(v, have, err);
    if (r == 0 && have->target_count == 0 && have->writes > 0 && v->spec->export.uri.text &&
        (v->spec->export.triggers & TRIGGER_ON_UNPUBLISH))
        export_now(d, v);
    return r;
}

int driver_unpublish(void *ctx, const struct volume_id *id, const char *path, struct err *err)
{
    struct driver *d = ctx;
    auto_volume_lock lock = NO_VOLUME_LOCK;
    auto_volume v = NULL;
    auto_record have = {0};
    struct pool *p;
    pending_publish_cancel_target(path);
    int r = id ? driver_lock_volume(d, id, &lock, &p, &v, err) : -(int)err->code;
    if (r == 0)
        r = record_of(v, &have, err);
    if (r < 0 && driver_may_unmount_unrecorded(d, err)) {
        log_err(LOG_INFO, "unpublishing without a record", err, "path", path, NULL);
        return clear_target(path, err);
    }
    if (r == 0)
        r = unpublish(d, v, &have, path, err);
    if (r == 0)
        driver_volume_changed(d, v);
    return r;
}
