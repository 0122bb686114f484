/* SPDX-License-Identifier: Apache-2.0 */
#include "facts.h"
#include "util/log.h"
#include <stdio.h>

void facts_done(struct facts *f)
{
    volume_close(f->volume);
    free(f->hydration);
    verdict_done(&f->verdict);
    *f = (struct facts){0};
}

bool facts_whole(const struct facts *f)
{
    return !f->has_source || (f->hydration && f->hydration->phase == HYDRATE_DONE);
}

bool facts_owe_export(const struct facts *f)
{
    const struct spec_export *e = &f->volume->spec->export;
    if (!e->uri || !(e->triggers & TRIGGER_ON_UNPUBLISH) || f->use.writes == 0 || !f->use.unpublished_ns ||
        f->use.published)
        return false;
    /* The same machine's clock wrote both. */
    return f->verdict.state != VERDICT_DONE || f->verdict.started_ns < f->use.unpublished_ns;
}

static bool params_differ(const struct api_volume *order, const struct spec *have)
{
    struct err err;
    auto_spec want = NULL;
    if (api_volume_spec(order, &want, &err) < 0)
        return false; /* whoever changed it was to check it; the volume stays as it is */
    return !spec_follows(have, want);
}

/* A verdict that cannot be read counts as none: the export then runs again, and compares with the bucket. */
static int read_verdict(struct facts *f, struct err *err)
{
    int r = verdict_read(f->volume->dir, &f->verdict, err);
    if (r != -ERR_CORRUPT)
        return r;
    log_err(LOG_WARN, "removed, the export runs again", err, "volume", f->volume->spec->id, NULL);
    return verdict_forget(f->volume->dir, err);
}

static int read_hydration(struct facts *f, struct err *err)
{
    const struct volume *v = f->volume;
    f->has_source = v->spec->params.hydration != HYDRATION_NONE && spec_source_count(v->spec) > 0;
    if (!f->has_source)
        return 0;
    struct hydrate_status *s = xcalloc(1, sizeof *s);
    /* Asked first: one that ends between the two is seen as alive once more, never as dead without its last word. */
    f->hydrating = hydrate_is_alive(v->dir);
    int r = hydrate_status_read(v->dir, s, err);
    if (r == 0)
        f->hydration = s;
    else
        free(s);
    /* A damaged one is written anew by the hydration, which goes by its journal. */
    return r == -ERR_NOT_FOUND || r == -ERR_CORRUPT ? 0 : r;
}

/* A machine that was started anew mounts no disk by itself, and a Job finds it mounted. */
static int read_usage(struct facts *f, struct err *err)
{
    int r = volume_usage(f->volume, &f->usage, err);
    if (r != -ERR_BUSY)
        return r;
    r = space_attach(f->space, str_of(f->volume->spec->id), err);
    return r < 0 ? r : volume_usage(f->volume, &f->usage, err);
}

static int read_volume(struct driver *d, const struct api_volume *order, struct facts *f, struct err *err)
{
    int r = space_find(f->space, str_of(order->volume_id), &f->volume, err);
    bool may_go = order->release_requested && order->release_discard; /* then nobody has to know what it was */
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
        r = local_use(d, f->volume, &f->use, err);
    /* What is on its way out need not be mounted for it. */
    if (r == 0 && !may_go)
        r = read_usage(f, err);
    return r;
}

/* It may have been made anew once already, in another pool than that of its id. */
static bool replaces_last(struct space *s, const struct api_volume *order)
{
    char uuid[SPEC_UUID_LEN + 1] = "";
    if (order->status.pool_uuid)
        snprintf(uuid, sizeof uuid, "%s", order->status.pool_uuid);
    else if (spec_id_is_valid(str_of(order->volume_id)))
        snprintf(uuid, sizeof uuid, "%.*s", SPEC_UUID_LEN, order->volume_id + 3);
    return strcmp(uuid, space_uuid(s)) == 0 || space_replaces(s, uuid, false);
}

int facts_read(struct driver *d, const struct api_volume *order, struct facts *ret, struct err *err)
{
    auto_facts f = {0};
    verdict_init(&f.verdict);
    f.space = order->pool ? local_pool_named(d, order->pool) : NULL;
    if (!f.space)
        err_set(&f.absence, ERR_ABSENT, "pool '%s' is not configured on this node", order->pool ? order->pool : "");
    else if (space_is_here(f.space, &f.absence) < 0)
        f.space = NULL;
    if (f.space && order->volume_id) {
        f.is_replaced = replaces_last(f.space, order);
        f.id_is_of_pool = spec_id_is_of_pool(str_of(order->volume_id), space_uuid(f.space));
        int r = read_volume(d, order, &f, err);
        if (r < 0)
            return err_wrap(err, "volume '%s'", order->meta.name);
    }
    *ret = f;
    f = (struct facts){0};
    return 0;
}
