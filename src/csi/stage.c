/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"
#include "progress.h"
#include "staged.h"
#include "util/clock.h"
#include "util/log.h"
#include "volume/mount.h"
#include "volume/record.h"
#include <sys/stat.h>

#define UNMOUNT_WAIT_NS (2 * NS_PER_SECOND)

/* ---- stage ------------------------------------------------------------------------------------------------------- */

/* Plain, without FUSE: as asked for, or where nothing has to be watched: only read, whole, nothing to export. */
static bool wants_fuse(const struct volume *v, const struct record *wish)
{
    char text[HEALTH_TEXT_MAX];
    bool failed;
    if (v->spec->params.access != ACCESS_AUTO)
        return v->spec->params.access == ACCESS_FUSE;
    return !wish->read_only || wish->has_group || v->spec->export.uri || !data_is_whole(v, text, &failed);
}

static int read_wish(const Csi__V1__NodeStageVolumeRequest *q, struct record *ret, struct err *err)
{
    ret->staged = str_dup(str_of(q->staging_target_path));
    ret->read_only = caps_is_read_only(q->volume_capability);
    return caps_group(q->volume_capability, &ret->has_group, &ret->group, err);
}

/* What is staged already stays: the same wish is granted again, another is refused. */
static int check_staged(const char *id, const struct record *have, const struct record *wish, struct err *err)
{
    bool mounted = false;
    int r = have->staged ? mount_is_at(have->staged, &mounted, err) : 0;
    if (r < 0 || !mounted)
        return r;
    if (strcmp(have->staged, wish->staged) != 0)
        return err_set(err, ERR_BUSY, "volume '%s' is staged at '%s'", id, have->staged);
    if (have->has_group != wish->has_group || have->group != wish->group) {
        err_set(err, ERR_BUSY, "volume '%s' is staged for another group", id);
        return err_advise(err, 3014, "pods of one volume must have the same fsGroup");
    }
    if (have->read_only != wish->read_only)
        return err_set(err, ERR_EXISTS, "volume '%s' is staged %s", id, have->read_only ? "read-only" : "for writing");
    return 0;
}

/* What was staged here before is remembered with its targets: some may still be mounted. */
static int carry_over(const struct record *have, struct record *wish, struct err *err)
{
    bool mounted;
    wish->writes = have->writes;
    wish->release = have->release;
    wish->unpublished_ns = have->unpublished_ns;
    if (!have->staged || strcmp(have->staged, wish->staged) != 0)
        return 0;
    int r = mount_is_at(have->staged, &mounted, err);
    if (r == 0 && mounted)
        wish->fuse = have->fuse;
    for (size_t i = 0; r == 0 && i < have->target_count; i++)
        r = record_add(wish, have->targets[i].path, have->targets[i].read_only, err);
    return r;
}

/* What is mounted there already is no new mount. */
static int admit(struct driver *d, const struct volume *v, struct record *have, const struct record *wish,
                 struct err *err)
{
    bool mounted = false;
    int r = have->staged && strcmp(have->staged, wish->staged) == 0 ? mount_is_at(wish->staged, &mounted, err) : 0;
    return r < 0 || mounted ? r : driver_admit(d, v, have, err);
}

/* What is mounted stays; a new mount would be one more that nobody knows of. */
static int stage_without_record(const char *id, const struct record *wish, struct err *err)
{
    bool mounted;
    int r = mount_is_at(wish->staged, &mounted, err);
    if (r < 0 || mounted)
        return r;
    err_set(err, ERR_BUSY, "volume '%s' is mounted, and its record of mounts is damaged", id);
    return err_advise(err, 3012, "it can be staged again when the pods that have it are gone");
}

static int stage(struct driver *d, struct space *s, const struct volume *v, struct record *wish, struct err *err)
{
    const char *id = v->spec->id;
    auto_record have = {0};
    auto_fd mount = -1;
    int r = record_of(v, &have, err);
    if (r == 0 && have.is_lost)
        return stage_without_record(id, wish, err);
    if (r == 0)
        r = check_staged(id, &have, wish, err);
    if (r < 0)
        return r;
    wish->fuse = wants_fuse(v, wish);
    if (!wish->fuse && wish->has_group && !wish->read_only) {
        err_set(err, ERR_INVALID, "volume '%s': a group (fsGroup) needs access: fuse, a plain bind cannot show it", id);
        return err_advise(err, 3017, "leave access at auto, or take fsGroup out of the pod");
    }
    r = admit(d, v, &have, wish, err);
    if (r == 0)
        r = carry_over(&have, wish, err);
    if (r == 0)
        r = record_write(v->dir, wish, err);
    if (r == 0)
        r = staged_open(d, s, v, wish, &mount, err);
    return r < 0 ? err_wrap(err, "staging volume '%s'", id) : 0;
}

static int check_stage(const Csi__V1__NodeStageVolumeRequest *q, struct err *err)
{
    int r = need_field(q->staging_target_path, "staging_target_path", err);
    if (r == 0 && !q->volume_capability)
        r = err_set(err, ERR_INVALID, "volume_capability is missing");
    if (r == 0)
        r = caps_check(q->volume_capability, err);
    return r;
}

static int check_folder(const char *path, struct err *err)
{
    struct stat st;
    if (path[0] != '/')
        return err_set(err, ERR_INVALID, "the path '%s' is not absolute", path);
    /* A dead FUSE mount answers ENOTCONN, and will be mounted anew. */
    if (stat(path, &st) != 0 && errno != ENOTCONN)
        return err_set(err, ERR_BUSY, "staging_target_path '%s' is not there: the caller makes it", path);
    return 0;
}

HANDLER(node_stage)
{
    (void)call, (void)reply;
    struct driver *d = ctx;
    const Csi__V1__NodeStageVolumeRequest *q = (const Csi__V1__NodeStageVolumeRequest *)request;
    auto_claim claim = {0};
    auto_volume v = NULL;
    auto_record wish = {0};
    struct space *s;
    int r = check_stage(q, err);
    if (r == 0)
        r = driver_claim(d, q->volume_id, &claim, &s, &v, err);
    if (r == 0)
        r = check_folder(q->staging_target_path, err);
    if (r == 0)
        r = read_wish(q, &wish, err);
    if (r == 0)
        r = stage(d, s, v, &wish, err);
    if (r == 0)
        driver_tell(d, v);
    return r;
}

/* ---- unstage ----------------------------------------------------------------------------------------------------- */

static int check_unpublished(const char *id, const struct record *record, struct err *err)
{
    for (size_t i = 0; i < record->target_count; i++) {
        bool mounted;
        int r = mount_is_at(record->targets[i].path, &mounted, err);
        if (r < 0)
            return r;
        if (mounted) {
            err_set(err, ERR_BUSY, "volume '%s' is still published at '%s'", id, record->targets[i].path);
            return err_advise(err, 3013, "unpublish it first");
        }
    }
    return 0;
}

/* Also of a volume that went with its disk: what is left of its mount must not keep its pod for ever. */
static int clear(struct driver *d, const char *id, const char *path, bool fuse, struct err *err)
{
    int r = fuse ? keeping_unmount(d->keeping, id, path, err) : 0;
    return r < 0 ? r : mount_unmount(path, UNMOUNT_WAIT_NS, true, err);
}

static int unstage(struct driver *d, const struct volume *v, const char *path, struct err *err)
{
    auto_record record = {0};
    int r = record_of(v, &record, err);
    if (r < 0 || (!record.is_lost && (!record.staged || strcmp(record.staged, path) != 0)))
        return r;
    r = check_unpublished(v->spec->id, &record, err);
    if (r == 0)
        r = clear(d, v->spec->id, path, record.fuse || record.is_lost, err);
    if (r < 0)
        return err_wrap(err, "unstaging volume '%s'", v->spec->id);
    struct record left = {.writes = record.writes, .release = record.release, .unpublished_ns = record.unpublished_ns};
    /* A pod that went without being unpublished, with its machine, may have written all the same. */
    if (record.is_lost || (record.writes > 0 && !record.unpublished_ns))
        left.unpublished_ns = clock_wall_ns();
    return record_write(v->dir, &left, err);
}

HANDLER(node_unstage)
{
    (void)call, (void)reply;
    struct driver *d = ctx;
    const Csi__V1__NodeUnstageVolumeRequest *q = (const Csi__V1__NodeUnstageVolumeRequest *)request;
    auto_claim claim = {0};
    auto_volume v = NULL;
    struct space *s;
    int r = need_field(q->staging_target_path, "staging_target_path", err);
    if (r == 0)
        r = driver_claim(d, q->volume_id, &claim, &s, &v, err);
    if (r < 0 && driver_may_clear(d, r))
        return clear(d, q->volume_id, q->staging_target_path, true, err);
    if (r == 0)
        r = unstage(d, v, q->staging_target_path, err);
    if (r == 0)
        driver_tell(d, v);
    return r;
}
