/* SPDX-License-Identifier: Apache-2.0 */
#include "observed.h"
#include "util/log.h"
#include <stdio.h>

void observed_done(struct observed *f)
{
    volume_close(f->volume);
    free(f->hydration);
    verdict_done(&f->verdict);
    *f = (struct observed){0};
}

bool observed_whole(const struct observed *f)
{
    return !f->has_source || (f->hydration && f->hydration->phase == HYDRATE_DONE);
}

bool observed_is_exported(const struct observed *f)
{
    /* Each is written after a look at the other: their order is true also if the clock was set back. */
    return f->use.unpublished_ns && !f->use.published && f->verdict.state == VERDICT_DONE &&
           f->verdict.started_ns >= f->use.unpublished_ns;
}

bool observed_owe_export(const struct observed *f)
{
    const struct spec_export *e = &f->volume->spec->export;
    if (!e->uri.text || !(e->triggers & TRIGGER_ON_UNPUBLISH) || f->use.writes == 0 || !f->use.unpublished_ns ||
        f->use.published)
        return false;
    return !observed_is_exported(f);
}

static bool params_differ(const struct api_volume *order, const struct spec *have)
{
    auto_spec want = NULL;
    if (api_volume_spec(order, &want, ERR_IGNORED) < 0)
        return false; /* an invalid change: the volume stays as it is */
    return !spec_follows(have, want);
}

/* An unreadable verdict is removed: the export runs again and compares with the bucket. */
static int read_verdict(struct observed *f, struct err *err)
{
    int r = verdict_read(f->volume->dir, &f->verdict, err);
    if (r != -ERR_CORRUPT)
        return r;
    log_err(LOG_WARN, "unreadable export verdict removed, the export runs again", err, "volume",
            f->volume->spec->id.text, NULL);
    return verdict_forget(f->volume->dir, err);
}

static int read_hydration(struct observed *f, struct err *err)
{
    const struct volume *v = f->volume;
    f->has_source = spec_is_hydrated(v->spec);
    if (!f->has_source)
        return 0;
    struct hydrate_status *s = xcalloc(1, sizeof *s);
    /* Before the status: a hydration that ends in between counts as alive once more, never as dead without a result. */
    f->hydrating = hydrate_is_alive(v->dir);
    int r = hydrate_status_read(v->dir, s, err);
    if (r == 0)
        f->hydration = s;
    else
        free(s);
    /* The hydration rewrites a corrupt status from its journal. */
    return r == -ERR_NOT_FOUND || r == -ERR_CORRUPT ? 0 : r;
}

/* After a reboot no volume is mounted, but Jobs need it mounted. A file system that has shut down is mounted again, if
 * nothing uses it. */
static int read_usage(struct observed *f, struct err *err)
{
    int r = volume_usage(f->volume, &f->usage, err);
    if (r != -ERR_BUSY && r != -ERR_IO)
        return r;
    r = pool_attach_volume(f->pool, &f->volume->spec->id, err);
    return r < 0 ? r : volume_usage(f->volume, &f->usage, err);
}

static int read_volume(struct driver *d, const struct api_volume *order, struct observed *f, struct err *err)
{
    int r = pool_find_volume(f->pool, &order->id, &f->volume, err);
    bool may_go = order->release_requested && order->release_discard; /* then its record is not needed */
    if (r == -ERR_NOT_FOUND || r == -ERR_CHANGED || (may_go && (r == -ERR_CORRUPT || r == -ERR_UNSUPPORTED)))
        return 0;
    if (r < 0)
        return r;
    f->here = true;
    f->differs = params_differ(order, f->volume->spec);
    r = read_hydration(f, err);
    if (r == 0)
        r = read_verdict(f, err);
    if (r == 0)
        r = driver_volume_use(d, f->volume, &f->use, err);
    /* A volume that may be deleted need not be mounted. */
    if (r == 0 && !may_go)
        r = read_usage(f, err);
    return r;
}

static bool replaces_last(struct pool *p, const struct api_volume *order)
{
    char uuid[SPEC_UUID_LEN + 1];
    snprintf(uuid, sizeof uuid, "%.*s", STR_FMT(api_volume_pool_uuid(order)));
    return strcmp(uuid, pool_uuid(p)) == 0 || pool_replaces(p, uuid, false);
}

int observed_read(struct driver *d, const struct api_volume *order, struct observed *ret, struct err *err)
{
    auto_observed f = {0};
    verdict_init(&f.verdict);
    f.pool = driver_pool_named(d, order->pool);
    if (!f.pool)
        err_set(&f.absence, ERR_ABSENT, "pool '%s' is not configured on this node", order->pool);
    else if (pool_is_here(f.pool, &f.absence) < 0)
        f.pool = NULL;
    if (f.pool) {
        f.is_replaced = replaces_last(f.pool, order);
        f.id_is_of_pool = volume_id_is_of_pool(&order->id, pool_uuid(f.pool));
        int r = read_volume(d, order, &f, err);
        if (r < 0)
            return err_wrap(err, "volume '%s'", order->meta.name);
    }
    *ret = f;
    f = (struct observed){0};
    return 0;
}
