/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/metric.h"

#define WRITE_NS (5 * NS_PER_SECOND)        /* minimum between two writes of progress */
#define WRITE_EACH_NS (NS_PER_SECOND / 100) /* for each active volume: with 1,000, once in 10 s */
#define USAGE_NS (60 * NS_PER_SECOND)
#define LOOK_NS (2 * NS_PER_SECOND)   /* for active volumes, besides dir_watch.h */
#define LOOK_EACH_NS (10 * NS_PER_MS) /* limits the share of time spent on reading */

/* ---- acting ------------------------------------------------------------------------------------------------------ */

static int make(struct agent *a, const struct api_volume *order, struct pool *p, struct err *err)
{
    auto_spec want = NULL;
    int r = api_volume_spec(order, &want, err);
    return r < 0 ? r : driver_create_volume(a->driver, p, want, err);
}

/* Files that were not exported are lost with the disk; logged once, when the volume is created again. */
static int take_over(struct agent *a, const struct api_volume *order, struct pool *p, struct err *err)
{
    auto_spec want = NULL;
    int r = api_volume_spec(order, &want, err);
    if (r < 0)
        return r;
    want->takes_over = true;
    if (want->params.on_data_loss == DATA_LOSS_EMPTY)
        want->params.hydration = HYDRATION_NONE;
    r = driver_create_volume(a->driver, p, want, err);
    if (r < 0)
        return r;
    metric_add(a->lost, 1);
    log_event(LOG_WARN, "volume created again after its disk was lost; files that were not exported are lost", "volume",
              order->meta.name, "id", order->id.text, "pool", pool_name(p), "onDataLoss",
              want->params.on_data_loss == DATA_LOSS_EMPTY ? "empty" : "rehydrate", NULL);
    return 0;
}

static int change(const struct api_volume *order, struct pool *p, struct err *err)
{
    auto_spec want = NULL;
    int r = api_volume_spec(order, &want, err);
    return r < 0 ? r : pool_follow_volume_order(p, &want->id, want, err);
}

static int refuse(const struct api_volume *order, const struct observed *f, struct err *err)
{
    err_set(err, ERR_CHANGED, "volume '%s': its pool '%s' has UUID %.*s, and the one on this node has %s",
            order->meta.name, order->pool, STR_FMT(volume_id_pool(&order->id)), f->pool ? pool_uuid(f->pool) : "none");
    return err_advise(err, CIS_POOL_DISK_REPLACED);
}

/* ---- release ----------------------------------------------------------------------------------------------------- */

struct release_commit {
    struct agent *agent;
    struct api_volume *order; /* the copy on which this step was decided */
    struct observed *f;       /* read before the step: an export may have ended since */
};

/* The result of the last export is deleted with the volume, so it is written with the commit. */
static int commit_fresh(struct agent *a, struct api_volume *now, const struct observed *f, struct err *err)
{
    auto_json answer = NULL;
    struct kube_request q = {
        .resource = &api_volumes, .name = str_of(now->meta.name), .field_manager = FIELD_MANAGER "-release"};
    now->status.release_committed = true;
    status_build_last_export(now, f, clock_wall_ns());
    int r = api_apply_status(a->kube, q, api_volume_commit_json(now), &answer, err);
    if (r == 0)
        orders_put(a->orders, now->meta.name, answer, true, orders_written_ns(a->orders, now->meta.name));
    return r;
}

/* `order` gets the fresh status. In a roll the other driver may have committed the release: then that holds. */
static int commit_now(struct agent *a, struct api_volume *order, const struct observed *f, struct err *err)
{
    auto_json fresh = NULL;
    auto_api_volume now = NULL;
    struct kube_request get = {.verb = KUBE_GET, .resource = &api_volumes, .name = str_of(order->meta.name)};
    int r = kube_call(a->kube, &get, &fresh, err);
    if (r == 0)
        r = api_volume_read(fresh, &now, err);
    if (r < 0)
        return r;
    if (!text_same(now->meta.uid, order->meta.uid) || !now->release_requested ||
        now->release_discard != order->release_discard)
        return err_set(err, ERR_CHANGED, "the CisternVolume changed during the release");
    if (!now->status.release_committed)
        r = commit_fresh(a, now, f, err);
    struct api_volume_status before = order->status;
    order->status = now->status;
    now->status = before;
    return r;
}

/* No export and no pod uses the volume any more. */
static int read_last_state(struct agent *a, struct observed *f, struct err *err)
{
    if (!f->here)
        return 0;
    verdict_done(&f->verdict);
    int r = verdict_read(f->volume->dir, &f->verdict, err);
    return r < 0 ? r : driver_volume_use(a->driver, f->volume, &f->use, err);
}

/* Reads the order from the server and marks it there, before anything is deleted. Any failure, an unreachable API
 * server too, means: not now. */
static int commit(void *ctx, struct err *err)
{
    const struct release_commit *c = ctx;
    if (read_last_state(c->agent, c->f, err) == 0 && commit_now(c->agent, c->order, c->f, err) == 0)
        return 0;
    kube_queue_add_after(c->agent->queue, STR(LIST_KEY), NS_PER_SECOND); /* read the order again */
    err_wrap(err, "the release of volume '%s' cannot be committed", c->order->meta.name);
    err->code = ERR_PENDING;
    return -ERR_PENDING;
}

/* A volume whose disk is missing: assume that files were written, unless the order proves otherwise. */
static bool may_owe_export(const struct api_volume *order)
{
    auto_spec spec = NULL;
    const struct api_conditions *said = &order->status.conditions;
    bool is_empty = api_condition_is(said, API_PROVISIONED, API_FALSE) ||
                    api_condition_says(said, API_EXPORTED, API_TRUE, API_REASON_NOTHING_WRITTEN);
    return !is_empty && (api_volume_spec(order, &spec, ERR_IGNORED) < 0 || spec->export.uri.text);
}

static int release(struct agent *a, struct api_volume *order, struct observed *f, enum release_step *ret,
                   struct err *err)
{
    struct release_commit c = {.agent = a, .order = order, .f = f};
    struct release_order o = {.id = &order->id,
                              .is_withdrawn = !order->release_requested,
                              .is_committed = order->status.release_committed,
                              .may_discard = order->release_discard,
                              .owes_if_absent = may_owe_export(order),
                              .commit = commit,
                              .ctx = &c};
    return driver_release_volume(a->driver, &o, ret, err);
}

static int act(struct agent *a, struct api_volume *order, struct observed *f, struct action_outcome *o, struct err *err)
{
    switch (o->action) {
    case ACTION_MAKE:
        return make(a, order, f->pool, err);
    case ACTION_TAKE_OVER:
        return take_over(a, order, f->pool, err);
    case ACTION_REFUSE:
        return refuse(order, f, err);
    case ACTION_CHANGE:
        return change(order, f->pool, err);
    case ACTION_RELEASE:
    case ACTION_REOPEN:
        return release(a, order, f, &o->release, err);
    default:
        return 0;
    }
}

/* ---- status ------------------------------------------------------------------------------------------------------ */

static bool usage_moved(const struct api_volume *before, const struct api_volume *now)
{
    uint64_t a = before->status.used_bytes, b = now->status.used_bytes;
    return (a > b ? a - b : b - a) > now->status.capacity_bytes / 50;
}

static bool is_worth_a_write(struct agent *a, const struct api_volume *before, const struct api_volume *now)
{
    uint64_t since_ns = clock_now_ns() - orders_written_ns(a->orders, now->meta.name);
    switch (status_compare(before, now)) {
    case STATUS_SAME:
        return false;
    case STATUS_USAGE:
        return since_ns >= USAGE_NS && usage_moved(before, now);
    case STATUS_PROGRESS:
        return since_ns >= max_u64(WRITE_NS, orders_active(a->orders) * WRITE_EACH_NS);
    case STATUS_CHANGED:
        return true;
    }
    return false;
}

static int write_status(struct agent *a, const struct api_volume *now, struct err *err)
{
    auto_json answer = NULL;
    struct kube_request q = {.resource = &api_volumes, .name = str_of(now->meta.name), .field_manager = FIELD_MANAGER};
    int r = api_apply_status(a->kube, q, api_volume_status_json(now), &answer, err);
    /* The order was deleted, or another one has its name: the next list shows which. */
    if (r == -ERR_NOT_FOUND || r == -ERR_CHANGED) {
        orders_drop(a->orders, now->meta.name);
        kube_queue_add_after(a->queue, STR(LIST_KEY), NS_PER_SECOND);
        return 0;
    }
    if (r < 0)
        return err_wrap(err, "status of CisternVolume '%s'", now->meta.name);
    orders_put(a->orders, now->meta.name, answer, status_is_active(now), clock_now_ns());
    return 0;
}

/* A warning on the order and on its claim. Best effort. */
static void warn(struct agent *a, const struct api_volume *v, const char *reason, const char *message)
{
    const struct kube_ref about[] = {api_ref(&api_volumes, &v->meta), api_volume_claim(v)};
    for (size_t i = 0; i < (v->claim_uid ? 2 : 1); i++)
        kube_event(a->events, &about[i], KUBE_WARNING, reason, "node %s: %s", a->node, message);
}

/* The status first: an event without its status would be repeated after a restart. */
static int write_status_with_events(struct agent *a, const struct api_volume *before, const struct api_volume *now,
                                    struct err *err)
{
    struct status_event events[STATUS_EVENTS_MAX];
    if (!is_worth_a_write(a, before, now))
        return 0;
    int r = write_status(a, now, err);
    size_t count = r < 0 ? 0 : status_events(before, now, events);
    for (size_t i = 0; i < count; i++)
        warn(a, now, events[i].reason, events[i].message);
    return r;
}

/* ---- when to read again ------------------------------------------------------------------------------------------ */

static uint64_t look_again_ns(struct agent *a, const struct api_volume *now, const struct observed *f)
{
    if (status_is_active(now))
        return max_u64(LOOK_NS, orders_active(a->orders) * LOOK_EACH_NS);
    if (f->use.mount_is_dead) /* a later keeper may restore it, without any call */
        return LOOK_NS;
    return f->use.staged ? USAGE_NS : 0;
}

void agent_volume_moved(void *ctx, const char *name)
{
    struct agent *a = ctx;
    kube_queue_add_after(a->queue, str_of(name), orders_active(a->orders) * LOOK_EACH_NS);
}

static void update_active(struct agent *a, const struct api_volume *now, const struct observed *f)
{
    bool active = status_is_active(now);
    orders_set_active(a->orders, now->meta.name, active);
    if (active && f->volume)
        dir_watch_add(a->dir_watch, now->meta.name, f->volume->path);
    else
        dir_watch_remove(a->dir_watch, now->meta.name);
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

static bool is_change(enum volume_action n)
{
    return n == ACTION_MAKE || n == ACTION_TAKE_OVER || n == ACTION_CHANGE || n == ACTION_RELEASE || n == ACTION_REOPEN;
}

/* After release, report the last known state. */
static int read_again(struct agent *a, const struct api_volume *order, const struct action_outcome *o,
                      struct observed *f, struct err *err)
{
    for (size_t i = 0; i < a->pool_count; i++)
        if (a->pools[i].pool == f->pool)
            agent_wake_pool(&a->pools[i]);
    if (o->action == ACTION_RELEASE)
        return 0;
    log_event(LOG_INFO, "CisternVolume processed", "volume", order->meta.name, "id", order->id.text, "step",
              action_name(o->action), NULL);
    observed_done(f);
    return observed_read(a->driver, order, f, err);
}

/* Carries out the action and updates the status in `now`. A failure in o->failure is reported in the status; a returned
 * error is not. */
static int carry_out(struct agent *a, struct api_volume *now, struct observed *f, struct action_outcome *o,
                     struct err *failure, struct err *err)
{
    int r = act(a, now, f, o, failure);
    if (r == -ERR_PENDING)
        return err_copy(err, failure); /* another call works on it; its result is reported later */
    if (r < 0)
        o->failure = failure;
    r = r == 0 && is_change(o->action) ? read_again(a, now, o, f, err) : 0;
    if (r == 0)
        status_build(now, f, o, clock_wall_ns());
    return r;
}

/* Rewrites a corrupt record of the volume from its order and reads it again. The damage is logged; the error returned
 * is that of the repair. */
static int restore(struct agent *a, const struct api_volume *order, struct observed *f, struct err *err)
{
    auto_spec known = NULL;
    struct pool *p = driver_pool_named(a->driver, order->pool);
    log_err(LOG_WARN, "a volume's record cannot be read", err, "volume", order->meta.name, "id", order->id.text, NULL);
    int r = api_volume_spec(order, &known, err);
    if (r < 0)
        return r;
    /* The last reported size: an ordered growth has not reserved any space yet. */
    if (order->status.capacity_bytes)
        known->capacity_bytes = order->status.capacity_bytes;
    known->created_ns = order->meta.created_ns;
    r = driver_restore_volume(a->driver, p, known, err);
    if (r < 0)
        return r;
    warn(a, order, "VolumeRestored", "its record on the disk was corrupt and was rewritten from its order");
    return observed_read(a->driver, order, f, err);
}

static int read_or_restore(struct agent *a, const struct api_volume *order, struct observed *f, struct err *err)
{
    int r = observed_read(a->driver, order, f, err);
    return r == -ERR_CORRUPT ? restore(a, order, f, err) : r;
}

/* INVALID: the record is corrupt, and this version cannot read the order either. IO: the disk. */
static bool is_unreadable(int r)
{
    return r == -ERR_CORRUPT || r == -ERR_UNSUPPORTED || r == -ERR_INVALID || r == -ERR_IO;
}

/* Still retried: an administrator may repair the file. */
static int write_unreadable(struct agent *a, const struct api_volume *before, struct api_volume *now, struct err *why)
{
    struct err err;
    status_build_unreadable(now, why, clock_wall_ns());
    if (write_status_with_events(a, before, now, &err) < 0)
        return err_copy(why, &err);
    return -(int)why->code;
}

int agent_reconcile_volume(struct agent *a, const char *name, uint64_t *again_ns, struct err *err)
{
    auto_api_volume before = orders_get(a->orders, name);
    auto_api_volume now = orders_get(a->orders, name);
    if (!before || !now || now->status.phase == API_PHASE_RELEASED)
        return 0;
    auto_observed f = {0};
    struct err failure;
    int r = read_or_restore(a, now, &f, err);
    if (is_unreadable(r))
        return write_unreadable(a, before, now, err);
    if (r < 0)
        return r;
    struct action_outcome o = {.action = action_of(now, a->node, &f)};
    if (o.action == ACTION_IGNORE || o.action == ACTION_REFUSED)
        return 0;
    r = carry_out(a, now, &f, &o, &failure, err);
    if (r < 0)
        return r;
    update_active(a, now, &f);
    r = write_status_with_events(a, before, now, err);
    /* A refusal is a final answer, not an error; a release is never refused. */
    if (r == 0 && o.failure && (o.action == ACTION_RELEASE || !refusal_reason(o.failure)))
        r = err_copy(err, o.failure);
    if (r == 0)
        *again_ns = look_again_ns(a, now, &f);
    return r;
}
