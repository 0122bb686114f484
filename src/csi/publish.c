/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"
#include "gate.h"
#include "progress.h"
#include "staged.h"
#include "util/clock.h"
#include "util/log.h"
#include "volume/mount.h"
#include "volume/record.h"
#include <stdio.h>
#include <sys/stat.h>

#define UNMOUNT_WAIT_NS (2 * NS_PER_SECOND)

/* ---- publish ----------------------------------------------------------------------------------------------------- */

struct wish {
    const char *id, *staged, *target;
    bool read_only, shared, has_group;
    uint32_t group;
};

static int read_wish(const Csi__V1__NodePublishVolumeRequest *q, struct wish *ret, struct err *err)
{
    int r = need_field(q->target_path, "target_path", err);
    if (r == 0 && !q->volume_capability)
        r = err_set(err, ERR_INVALID, "volume_capability is missing");
    if (r == 0)
        r = caps_check(q->volume_capability, err);
    if (r == 0)
        r = caps_group(q->volume_capability, &ret->has_group, &ret->group, err);
    if (r < 0)
        return r;
    if (q->target_path[0] != '/')
        return err_set(err, ERR_INVALID, "target_path '%s' is not absolute", q->target_path);
    ret->id = q->volume_id;
    ret->staged = q->staging_target_path;
    ret->target = q->target_path;
    ret->read_only = q->readonly || caps_is_read_only(q->volume_capability);
    ret->shared = caps_is_shared(q->volume_capability);
    return 0;
}

/* Does it contradict what is there? *ret_done: it is published so already, and that is the whole answer: a republish
 * that failed would make the kubelet tear down a mount that works. A dead one is published again. */
static int compare(const struct record *have, const struct wish *w, bool *ret_done, struct err *err)
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
            return err_set(err, ERR_EXISTS, "volume '%s' is published at '%s' %s", w->id, w->target,
                           w->read_only ? "for writing" : "read-only");
        if (!same && !w->shared)
            return err_set(err, ERR_BUSY, "volume '%s' has one writer, and is published at '%s' already", w->id,
                           have->targets[i].path);
        bool dead = false;
        r = same ? staged_is_dead(w->target, &dead, err) : 0;
        if (r < 0)
            return r;
        *ret_done |= same && !dead;
    }
    return 0;
}

static int check_staged(const struct record *have, const struct wish *w, struct err *err)
{
    if (!w->staged[0])
        return err_set(err, ERR_BUSY, "volume '%s': staging_target_path is missing, it must be staged first", w->id);
    if (!have->staged || strcmp(have->staged, w->staged) != 0)
        return err_set(err, ERR_BUSY, "volume '%s' is not staged at '%s'", w->id, w->staged);
    if (have->has_group != w->has_group || have->group != w->group) {
        err_set(err, ERR_BUSY, "volume '%s' is staged for another group", w->id);
        return err_advise(err, 3014, "pods of one volume must have the same fsGroup");
    }
    if (have->read_only && !w->read_only)
        return err_set(err, ERR_BUSY, "volume '%s' is staged read-only", w->id);
    return 0;
}

static int make_target(const char *path, struct err *err)
{
    if (mkdir(path, 0750) != 0 && errno != EEXIST)
        return err_sys(err, errno, "cannot make the folder '%s'", path);
    return 0;
}

/* What a pod left that was never unpublished, in a machine that was started anew or by a mount that failed: such an
 * entry would keep the volume published for ever, and its export from being owed. */
static int forget_unmounted(struct record *have, struct err *err)
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

/* Remember first: an entry without a mount is nothing, a mount without an entry would let the volume be deleted, and
 * what is written without being counted would hide behind an older verdict. What is still mounted at the target is
 * dead, see compare(). */
static int publish(struct driver *d, struct space *s, const struct volume *v, struct record *have, const struct wish *w,
                   struct err *err)
{
    auto_fd mount = -1;
    int r = staged_open(d, s, v, have, &mount, err);
    if (r == 0)
        r = mount_unmount(w->target, 0, true, err);
    if (r == 0)
        r = forget_unmounted(have, err);
    if (r == 0)
        r = record_add(have, w->target, w->read_only, err);
    if (!w->read_only)
        record_count_write(have);
    have->unpublished_ns = 0;
    if (r == 0)
        r = record_write(v->dir, have, err);
    if (r == 0)
        r = make_target(w->target, err);
    if (r == 0)
        r = mount_bind(mount, "", w->target, w->read_only, err);
    return r < 0 ? err_wrap(err, "publishing volume '%s'", w->id) : 0;
}

/* What is mounted stays; a new mount would be one more that nobody knows of. */
static int look_without_record(const struct wish *w, bool *ret_done, struct err *err)
{
    int r = mount_is_at(w->target, ret_done, err);
    if (r < 0 || *ret_done)
        return r;
    err_set(err, ERR_BUSY, "volume '%s' is mounted, and its record of mounts is damaged", w->id);
    return err_advise(err, 3012, "it can be published again when the pods that have it are gone");
}

/* *ret_done: nothing is left to do. */
static int look(struct driver *d, const struct volume *v, const struct wish *w, struct record *ret, bool *ret_done,
                struct err *err)
{
    int r = record_of(v, ret, err);
    if (r == 0 && ret->is_lost)
        return look_without_record(w, ret_done, err);
    if (r == 0)
        r = compare(ret, w, ret_done, err);
    if (r == 0 && !*ret_done)
        r = driver_admit(d, v, ret, err);
    if (r == 0 && !*ret_done)
        r = check_staged(ret, w, err);
    return r;
}

HANDLER(node_publish)
{
    (void)reply;
    struct driver *d = ctx;
    auto_volume v = NULL;
    auto_claim claim = {0};
    auto_record before = {0}, have = {0};
    auto_waiter waiter = {0};
    struct space *s;
    struct wish w;
    bool done;
    int r = read_wish((const Csi__V1__NodePublishVolumeRequest *)request, &w, err);
    if (r < 0)
        return r;
    gate_enter(&waiter, w.id, w.target);
    r = driver_find(d, w.id, &s, &v, err);
    if (r == 0)
        r = look(d, v, &w, &before, &done, err);
    if (r < 0 || done)
        return r;
    /* The claim is not held while we wait, so that the volume can be taken back meanwhile: hence the second look. */
    r = gate_wait(d, call, v, &waiter, err);
    if (r == 0)
        r = claim_take(&d->claims, w.id, &claim, err);
    if (r == 0)
        r = claim_hold(&claim, v->dir, v->path, err);
    if (r == 0)
        r = gate_check(&waiter, err);
    if (r == 0)
        r = look(d, v, &w, &have, &done, err);
    if (r < 0 || done)
        return r;
    r = publish(d, s, v, &have, &w, err);
    if (r == 0)
        driver_tell(d, v);
    return r;
}

/* ---- unpublish --------------------------------------------------------------------------------------------------- */

static int remove_target(const char *path, struct err *err)
{
    if (rmdir(path) == 0 || errno == ENOENT)
        return 0;
    if (errno == ENOTDIR && unlink(path) == 0)
        return 0;
    return err_sys(err, errno, "cannot remove the folder '%s'", path);
}

/* The last pod has gone: what it wrote can travel while the volume waits for the next one, or for its end. */
static void export_now(struct driver *d, const struct volume *v)
{
    struct err err;
    struct job_view job;
    int r = driver_want_job(d, v, JOB_EXPORT_UNPUBLISH, true, &job, &err);
    if (r < 0)
        log_err(LOG_WARN, "the export after unpublishing cannot begin", &err, "volume", v->spec->id, NULL);
}

static int clear_target(const char *target, struct err *err)
{
    int r = mount_unmount(target, UNMOUNT_WAIT_NS, true, err);
    return r < 0 ? r : remove_target(target, err);
}

static int unpublish(struct driver *d, const struct volume *v, const char *target, struct err *err)
{
    auto_record have = {0};
    int r = record_of(v, &have, err);
    if (r == 0)
        r = clear_target(target, err);
    bool was_known = r == 0 && record_target(&have, target);
    if (was_known)
        r = forget_unmounted(&have, err);
    if (r < 0)
        return err_wrap(err, "unpublishing volume '%s'", v->spec->id);
    if (!was_known)
        return 0;
    if (have.target_count == 0)
        have.unpublished_ns = clock_wall_ns();
    r = record_write(v->dir, &have, err);
    if (r == 0 && have.target_count == 0 && have.writes > 0 && v->spec->export.uri &&
        (v->spec->export.triggers & TRIGGER_ON_UNPUBLISH))
        export_now(d, v);
    return r;
}

HANDLER(node_unpublish)
{
    (void)call, (void)reply;
    struct driver *d = ctx;
    const Csi__V1__NodeUnpublishVolumeRequest *q = (const Csi__V1__NodeUnpublishVolumeRequest *)request;
    auto_claim claim = {0};
    auto_volume v = NULL;
    struct space *s;
    int r = need_field(q->target_path, "target_path", err);
    if (r == 0) {
        gate_call_off_target(q->target_path);
        r = driver_claim(d, q->volume_id, &claim, &s, &v, err);
    }
    if (r < 0 && driver_may_clear(d, r))
        return clear_target(q->target_path, err);
    if (r == 0)
        r = unpublish(d, v, q->target_path, err);
    if (r == 0)
        driver_tell(d, v);
    return r;
}
