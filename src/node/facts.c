/* SPDX-License-Identifier: Apache-2.0 */
#include "facts.h"
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
    if (!e->uri || !(e->triggers & TRIGGER_ON_UNPUBLISH) || !f->use.written || !f->use.unpublished_ns ||
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
    return want->params.concurrency != have->params.concurrency || want->params.bandwidth != have->params.bandwidth ||
           want->params.on_data_loss != have->params.on_data_loss;
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
    return r == -ERR_NOT_FOUND ? 0 : r;
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
    if (r == -ERR_NOT_FOUND || r == -ERR_CHANGED)
        return 0;
    if (r < 0)
        return r;
    f->here = true;
    f->differs = params_differ(order, f->volume->spec);
    r = read_hydration(f, err);
    if (r == 0)
        r = verdict_read(f->volume->dir, &f->verdict, err);
    if (r == 0)
        r = local_use(d, f->volume, &f->use, err);
    /* What is on its way out need not be mounted for it. */
    if (r == 0 && !(order->release_requested && order->release_discard))
        r = read_usage(f, err);
    return r;
}

int facts_read(struct driver *d, const struct api_volume *order, struct facts *ret, struct err *err)
{
    auto_facts f = {0};
    verdict_init(&f.verdict);
    f.space = order->pool ? local_pool_named(d, order->pool) : NULL;
    if (f.space && order->volume_id) {
        f.id_is_of_pool = spec_id_is_of_pool(str_of(order->volume_id), space_uuid(f.space));
        int r = read_volume(d, order, &f, err);
        if (r < 0)
            return err_wrap(err, "volume '%s'", order->meta.name);
    }
    *ret = f;
    f = (struct facts){0};
    return 0;
}
