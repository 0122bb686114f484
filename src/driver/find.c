/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the volume of a call and its pool, and requests the volume's jobs. */
#include "child.h"
#include "export/verdict.h"
#include "private.h"
#include "util/clock.h"
#include "util/log.h"
#include <stdio.h>

/* A volume that was created again after the loss of its disk keeps its id, which names the lost pool. */
static struct pool *adopted_by(struct driver *d, const struct volume_id *id)
{
    for (size_t i = 0; i < d->pool_count; i++) {
        auto_volume v = NULL;
        if (pool_find_volume(d->pools[i], id, &v, ERR_IGNORED) == 0)
            return d->pools[i];
    }
    return NULL;
}

struct pool *driver_pool_of(struct driver *d, const struct volume_id *id)
{
    for (size_t i = 0; i < d->pool_count; i++)
        if (volume_id_is_of_pool(id, pool_uuid(d->pools[i])))
            return d->pools[i];
    return adopted_by(d, id);
}

/* EROFS: after an error, the kernel made the file system read-only. */
static bool is_disk_broken(const struct err *err)
{
    return err->sys == EROFS || err->sys == EIO || err->sys == EUCLEAN;
}

bool driver_may_unmount_unrecorded(const struct driver *d, const struct err *err)
{
    bool is_unknown = err->code == ERR_NOT_FOUND || err->code == ERR_ABSENT;
    return (d->is_node && is_unknown) || is_disk_broken(err);
}

int64_t driver_unpublished_now_ns(const struct volume *v)
{
    auto_with(verdict_done) struct verdict last;
    int64_t now_ns = clock_wall_ns();
    verdict_init(&last);
    return verdict_read(v->dir, &last, ERR_IGNORED) == 0 && last.started_ns >= now_ns ? last.started_ns + 1 : now_ns;
}

int driver_record_unmounted(const struct volume *v, const struct record *r, struct err *err)
{
    int e = record_write(v->dir, r, err);
    if (e == 0 || !is_disk_broken(err))
        return e;
    log_err(LOG_WARN, "an unmount could not be recorded", err, "volume", v->spec->id.text, NULL);
    return 0;
}

static bool is_given_up(struct driver *d, const char *uuid)
{
    if (str_is_in(str_of(uuid), str_of(d->given_up), ','))
        return true;
    for (size_t i = 0; i < d->pool_count; i++)
        if (pool_replaces(d->pools[i], uuid, true))
            return true;
    return false;
}

static int refuse_absent_pool(struct driver *d, const struct volume_id *id, struct err *err)
{
    char uuid[SPEC_UUID_LEN + 1];
    struct err why;
    auto_sbuf pools = SBUF(ERR_TEXT_MAX * DRIVER_POOLS_MAX);
    snprintf(uuid, sizeof uuid, "%.*s", STR_FMT(volume_id_pool(id)));
    if (is_given_up(d, uuid))
        return err_fail(err, ERR_NOT_FOUND, CIS_POOL_GIVEN_UP, "volume '%s': not found: its pool %s was given up",
                        id->text, uuid);
    for (size_t i = 0; i < d->pool_count; i++) {
        if (pool_is_open(d->pools[i]))
            sbuf_addf(&pools, "; pool '%s' is %s", pool_name(d->pools[i]), pool_uuid(d->pools[i]));
        else if (pool_is_here(d->pools[i], &why) < 0)
            sbuf_addf(&pools, "; %s", why.text);
    }
    return err_fail(err, ERR_ABSENT, CIS_POOL_ABSENT, "volume '%s': its pool %s is missing on this node%s", id->text,
                    uuid, pools.ptr);
}

int driver_find(struct driver *d, const struct volume_id *id, struct pool **ret_pool, struct volume **ret,
                struct err *err)
{
    struct pool *p = driver_pool_of(d, id);
    if (!p)
        return refuse_absent_pool(d, id, err);
    int r = pool_find_volume(p, id, ret, err);
    if (r == 0)
        *ret_pool = p;
    if (r == -ERR_CORRUPT && d->changed)
        d->changed(d->ctx, NULL); /* only the order has the volume's name */
    return r;
}

int driver_lock_volume(struct driver *d, const struct volume_id *id, struct volume_lock *lock, struct pool **ret_pool,
                       struct volume **ret, struct err *err)
{
    auto_volume v = NULL;
    int r = volume_lock_take(&d->locks, id->text, lock, err);
    if (r == 0)
        r = driver_find(d, id, ret_pool, &v, err);
    if (r == 0)
        r = volume_lock_file(lock, v->dir, v->path, err);
    if (r == 0)
        *ret = take(&v);
    return r;
}

int driver_request_job(struct driver *d, const struct volume *v, enum job_kind kind, bool fresh,
                       struct driver_job_view *ret, struct err *err)
{
    if (d->jobs)
        return jobs_request(d->jobs, &v->spec->id, v->path, kind, fresh, ret, err);
    *ret = (struct driver_job_view){.state = child_lives(kind, v->path) ? JOB_RUNNING : JOB_FAILED};
    return 0;
}

void driver_volume_changed(struct driver *d, const struct volume *v)
{
    if (d->changed)
        d->changed(d->ctx, v->spec->name);
}

int driver_pool_get(struct driver *d, const char *name, struct pool **ret, struct err *err)
{
    struct pool *found = driver_pool_named(d, name);
    if (found) {
        *ret = found;
        return 0;
    }
    auto_sbuf names = SBUF(ERR_TEXT_MAX);
    for (size_t i = 0; i < d->pool_count; i++)
        sbuf_addf(&names, "%s'%s'", i ? ", " : "", pool_name(d->pools[i]));
    return err_set(err, ERR_INVALID, "pool '%s': not found, the pools are %s", name, names.ptr);
}
