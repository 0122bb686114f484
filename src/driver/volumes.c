/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/volumes.h"
#include "hydrate/status.h"
#include "pool/mount.h"
#include "pool/record.h"
#include "private.h"
#include "util/file.h"
#include "util/log.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

size_t driver_pool_count(const struct driver *d)
{
    return d->pool_count;
}

struct pool *driver_pool_at(const struct driver *d, size_t index)
{
    return d->pools[index];
}

struct pool *driver_pool_named(const struct driver *d, const char *name)
{
    for (size_t i = 0; i < d->pool_count; i++)
        if (strcmp(pool_name(d->pools[i]), name) == 0)
            return d->pools[i];
    return NULL;
}

int driver_create_volume(struct driver *d, struct pool *p, const struct spec *want, struct err *err)
{
    char key[VOLUME_LOCK_KEY_MAX];
    auto_volume_lock lock = NO_VOLUME_LOCK;
    auto_volume v = NULL;
    snprintf(key, sizeof key, "/%.*s", VOLUME_LOCK_KEY_MAX - 2, want->name);
    int r = volume_lock_take(&d->locks, key, &lock, err);
    return r < 0 ? r : pool_create_volume(p, want, 0, &v, err);
}

/* Valid only while no call works on the volume, because an unmount ends the keeper's part first. A restarted keeper
 * gets all mounts back as soon as the mirror is connected. */
static bool has_lost_its_keeper(struct driver *d, const struct volume_id *id, const char *staged)
{
    struct keeper_status status;
    auto_volume_lock lock = NO_VOLUME_LOCK;
    bool mounted;
    return volume_lock_take(&d->locks, id->text, &lock, ERR_IGNORED) == 0 && mirror_is_connected(d->mirror) &&
           keeper_status(d->keeper_socket, id->text, &status, ERR_IGNORED) == -ERR_NOT_FOUND &&
           mount_is_at(staged, &mounted, ERR_IGNORED) == 0 && mounted;
}

/* The last pod may have ended with its machine, or when the record could not be written. */
static int64_t unpublished_ns_of(const struct volume *v, const struct record *r, bool is_mounted)
{
    bool is_unrecorded = r->writes > 0 && !r->unpublished_ns && !is_mounted;
    return is_unrecorded ? record_changed_ns(v->dir) : r->unpublished_ns;
}

int driver_volume_use(struct driver *d, const struct volume *v, struct volume_use *ret, struct err *err)
{
    auto_record record = {0};
    struct keeper_status status;
    struct volume_use use = {0};
    int r = record_of(v, &record, err);
    use.staged = use.published = r == 0 && record.is_lost;
    if (r == 0 && record.staged)
        r = mount_is_at(record.staged, &use.staged, err);
    for (size_t i = 0; r == 0 && !use.published && i < record.target_count; i++)
        r = mount_is_at(record.targets[i].path, &use.published, err);
    if (r < 0)
        return r;
    use.read_only = record.read_only;
    use.writes = record.writes;
    use.release = record.release;
    use.unpublished_ns = unpublished_ns_of(v, &record, use.staged || use.published);
    use.fuse = record.fuse;
    if (use.staged && use.fuse) {
        r = keeper_status(d->keeper_socket, v->spec->id.text, &status, ERR_IGNORED);
        use.passthrough = r == 0 && status.passthrough;
        use.mount_is_dead = r == -ERR_NOT_FOUND && has_lost_its_keeper(d, &v->spec->id, record.staged);
    }
    *ret = use;
    return 0;
}

/* ---- files lost with a disk -------------------------------------------------------------------------------------- */

/* A volume that was created again, empty, after a loss ignores the source of its order: a pod wrote to it, and no
 * hydration was completed. */
static bool was_made_empty(int dir, const struct spec *known)
{
    auto_record record = {0};
    auto_mem struct hydrate_status *s = xcalloc(1, sizeof *s);
    if (known->params.on_data_loss != DATA_LOSS_EMPTY || record_read(dir, &record, ERR_IGNORED) < 0 || !record.writes)
        return false;
    return hydrate_status_read(dir, s, ERR_IGNORED) < 0 || s->phase != HYDRATE_DONE;
}

int driver_restore_volume(struct driver *d, struct pool *p, const struct spec *known, struct err *err)
{
    auto_volume_lock lock = NO_VOLUME_LOCK;
    auto_sbuf path = SBUF(PATH_MAX);
    pool_add_volume_path(p, &known->id, &path);
    auto_fd dir = -1;
    struct spec made = *known; /* a shallow copy: the strings stay the caller's */
    int r = volume_lock_take(&d->locks, known->id.text, &lock, err);
    if (r == 0)
        r = dir_open(AT_FDCWD, path.ptr, &dir, err);
    if (r < 0)
        return r;
    if (was_made_empty(dir, known))
        made.params.hydration = HYDRATION_NONE;
    r = pool_restore_volume(p, &made, err);
    if (r == 0)
        log_event(LOG_WARN, "volume record was corrupt: written again from its order", "volume", known->id.text, "name",
                  known->name, NULL);
    return r;
}
