/* SPDX-License-Identifier: Apache-2.0 */
#include "news.h"
#include "private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/metric.h"

#define WRITE_NS (5 * NS_PER_SECOND)        /* at least, between two writes of what only moves on */
#define WRITE_EACH_NS (NS_PER_SECOND / 100) /* for each volume at work: 1,000 of them, once in 10 s */
#define USAGE_NS (60 * NS_PER_SECOND)
#define LOOK_NS (2 * NS_PER_SECOND)   /* at what is under way; when it moves on, that is told (notify.h) */
#define LOOK_EACH_NS (10 * NS_PER_MS) /* but not more than so much of the time is spent with looking */

/* ---- acting ------------------------------------------------------------------------------------------------------ */

static int make(struct agent *a, const struct api_volume *order, struct space *s, struct err *err)
{
    auto_spec want = NULL;
    int r = api_volume_spec(order, &want, err);
    return r < 0 ? r : local_make(a->driver, s, want, err);
}

/* What was not exported when the disk went is lost; that is said once, when the volume begins anew. */
static int take_over(struct agent *a, const struct api_volume *order, struct space *s, struct err *err)
{
    auto_spec want = NULL;
    int r = api_volume_spec(order, &want, err);
    if (r < 0)
        return r;
    want->takes_over = true;
    if (want->params.on_data_loss == DATA_LOSS_EMPTY)
        want->params.hydration = HYDRATION_NONE;
    r = local_make(a->driver, s, want, err);
    if (r < 0)
        return r;
    metric_add(a->lost, 1);
    log_event(LOG_WARN, "a volume whose disk was lost is made anew; what was not exported is lost", "volume",
              order->meta.name, "id", order->volume_id, "pool", space_name(s), "onDataLoss",
              want->params.on_data_loss == DATA_LOSS_EMPTY ? "empty" : "rehydrate", NULL);
    return 0;
}

static int change(const struct api_volume *order, struct space *s, struct err *err)
{
    auto_spec want = NULL;
    int r = api_volume_spec(order, &want, err);
    return r < 0 ? r : space_follow(s, str_of(order->volume_id), want, err);
}

static int refuse(const struct api_volume *order, const struct facts *f, struct err *err)
{
    err_set(err, ERR_CHANGED, "volume '%s' was ordered for pool '%s' as '%s', and the pool here is %s",
            order->meta.name, order->pool ? order->pool : "", order->volume_id ? order->volume_id : "",
            f->space ? space_uuid(f->space) : "not there");
    return err_advise(err, 3001, "it is ordered again elsewhere");
}

/* ---- release ----------------------------------------------------------------------------------------------------- */

struct committing {
    struct agent *agent;
    const struct api_volume *order; /* as the steps before were decided by it */
};

static int commit_now(struct agent *a, const struct api_volume *order, struct err *err)
{
    auto_json fresh = NULL;
    auto_json answer = NULL;
    auto_api_volume now = NULL;
    struct kube_request get = {.verb = KUBE_GET, .resource = &api_volumes, .name = str_of(order->meta.name)};
    int r = kube_call(a->kube, &get, &fresh, err);
    if (r == 0)
        r = api_volume_read(fresh, &now, err);
    if (r < 0)
        return r;
    if (strcmp(now->meta.uid, order->meta.uid) != 0 || !now->release_requested ||
        now->release_discard != order->release_discard)
        return err_set(err, ERR_CHANGED, "the order is another one by now");
    auto_json body = api_volume_commit_json(now);
    struct kube_request q = {.verb = KUBE_APPLY,
                             .resource = &api_volumes,
                             .name = str_of(now->meta.name),
                             .subresource = "status",
                             .body = body,
                             .field_manager = FIELD_MANAGER "-release",
                             .force = true};
    r = kube_call(a->kube, &q, &answer, err);
    if (r == 0)
        orders_put(a->orders, order->meta.name, answer, true, orders_written_ns(a->orders, order->meta.name));
    return r;
}

/* Asked of the server itself, and marked there, before anything is destroyed. Whatever is in the way, an API server
 * that is down among it: not now. */
static int commit(void *ctx, struct err *err)
{
    const struct committing *c = ctx;
    if (commit_now(c->agent, c->order, err) == 0)
        return 0;
    kube_queue_add_after(c->agent->queue, STR(LIST_KEY), NS_PER_SECOND); /* what the order says now */
    err_wrap(err, "the release of volume '%s' cannot be committed", c->order->meta.name);
    err->code = ERR_PENDING;
    return -ERR_PENDING;
}

/* Of a volume whose disk is not here: what the order does not say counts as written. */
static bool owes_if_absent(const struct api_volume *order)
{
    struct err ignored;
    auto_spec spec = NULL;
    const struct api_conditions *said = &order->status.conditions;
    bool is_empty = api_condition_is(said, API_PROVISIONED, API_FALSE) ||
                    api_condition_says(said, API_EXPORTED, API_TRUE, API_REASON_NOTHING_WRITTEN);
    return !is_empty && (api_volume_spec(order, &spec, &ignored) < 0 || spec->export.uri);
}

static int release(struct agent *a, const struct api_volume *order, enum release_step *ret, struct err *err)
{
    struct committing c = {.agent = a, .order = order};
    struct local_order o = {.id = order->volume_id,
                            .is_withdrawn = !order->release_requested,
                            .is_committed = order->status.release_committed,
                            .may_discard = order->release_discard,
                            .owes_if_absent = owes_if_absent(order),
                            .commit = commit,
                            .ctx = &c};
    return local_release(a->driver, &o, ret, err);
}

static int act(struct agent *a, const struct api_volume *order, const struct facts *f, struct outcome *o,
               struct err *err)
{
    switch (o->next) {
    case NEXT_MAKE:
        return make(a, order, f->space, err);
    case NEXT_TAKE_OVER:
        return take_over(a, order, f->space, err);
    case NEXT_REFUSE:
        return refuse(order, f, err);
    case NEXT_CHANGE:
        return change(order, f->space, err);
    case NEXT_RELEASE:
    case NEXT_REOPEN:
        return release(a, order, &o->release, err);
    default:
        return 0;
    }
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

static uint64_t write_interval_ns(struct agent *a)
{
    return max_u64(WRITE_NS, orders_active(a->orders) * WRITE_EACH_NS);
}

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
        return since_ns >= write_interval_ns(a);
    case STATUS_TOLD:
        return true;
    }
    return false;
}

static int tell(struct agent *a, const struct api_volume *now, struct err *err)
{
    auto_json body = api_volume_status_json(now);
    auto_json answer = NULL;
    struct kube_request q = {.verb = KUBE_APPLY,
                             .resource = &api_volumes,
                             .name = str_of(now->meta.name),
                             .subresource = "status",
                             .body = body,
                             .field_manager = FIELD_MANAGER,
                             .force = true};
    int r = kube_call(a->kube, &q, &answer, err);
    /* The order is gone, or another one has its name: the next list says which. */
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

void volume_warn(struct agent *a, const struct api_volume *v, const char *reason, const char *message)
{
    const struct kube_ref about[] = {
        {.resource = &api_volumes, .name = str_of(v->meta.name), .uid = str_of(v->meta.uid)},
        {.resource = &kube_persistent_volume_claims,
         .ns = str_of(v->claim_namespace),
         .name = str_of(v->claim_name),
         .uid = str_of(v->claim_uid)}};
    for (size_t i = 0; i < (v->claim_uid ? 2 : 1); i++)
        kube_event(a->events, &about[i], KUBE_WARNING, reason, "node %s: %s", a->node, message);
}

/* Written first: an event for what nobody finds in the status would be told again after a restart. */
static int tell_with_news(struct agent *a, const struct api_volume *before, const struct api_volume *now,
                          struct err *err)
{
    struct news news[NEWS_MAX];
    if (!is_worth_a_write(a, before, now))
        return 0;
    int r = tell(a, now, err);
    size_t count = r < 0 ? 0 : news_of(before, now, news);
    for (size_t i = 0; i < count; i++)
        volume_warn(a, now, news[i].reason, news[i].message);
    return r;
}

/* ---- when to look again ------------------------------------------------------------------------------------------ */

static uint64_t look_again_ns(struct agent *a, const struct api_volume *now, const struct facts *f)
{
    if (status_is_active(now))
        return max_u64(LOOK_NS, orders_active(a->orders) * LOOK_EACH_NS);
    return f->use.staged ? USAGE_NS : 0;
}

void volume_moved(void *ctx, const char *name)
{
    struct agent *a = ctx;
    kube_queue_add_after(a->queue, str_of(name), orders_active(a->orders) * LOOK_EACH_NS);
}

static void set_active(struct agent *a, const struct api_volume *now, const struct facts *f)
{
    bool active = status_is_active(now);
    orders_set_active(a->orders, now->meta.name, active);
    if (active && f->volume)
        notify_add(a->notify, now->meta.name, f->volume->path);
    else
        notify_remove(a->notify, now->meta.name);
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

static bool is_change(enum next n)
{
    return n == NEXT_MAKE || n == NEXT_TAKE_OVER || n == NEXT_CHANGE || n == NEXT_RELEASE || n == NEXT_REOPEN;
}

/* Of what is gone, the last that was seen is what is told. */
static int look_anew(struct agent *a, const struct api_volume *order, const struct outcome *o, struct facts *f,
                     struct err *err)
{
    for (size_t i = 0; i < a->pool_count; i++)
        if (a->pools[i].space == f->space)
            pool_wake(&a->pools[i]);
    if (o->next == NEXT_RELEASE)
        return 0;
    log_event(LOG_INFO, "order carried out", "volume", order->meta.name, "id", order->volume_id, "step",
              next_name(o->next), NULL);
    facts_done(f);
    return facts_read(a->driver, order, f, err);
}

/* Does what the order and the disk ask for, and makes `now` the status that follows. A failure is
 * left in o->failure to be told; what is returned is not. */
static int carry_out(struct agent *a, struct api_volume *now, struct facts *f, struct outcome *o, struct err *failure,
                     struct err *err)
{
    int r = act(a, now, f, o, failure);
    if (r == -ERR_PENDING)
        return err_copy(err, failure); /* a call is at work on it: what it leaves is told then */
    if (r < 0)
        o->failure = failure;
    r = r == 0 && is_change(o->next) ? look_anew(a, now, o, f, err) : 0;
    if (r == 0)
        status_build(now, f, o, clock_wall_ns());
    return r;
}

/* What the volume is, its order says as well: it is written down again, and looked at anew. Why that did not do is the
 * error then; the damage itself is told in the log. */
static int restore(struct agent *a, const struct api_volume *order, struct facts *f, struct err *err)
{
    auto_spec known = NULL;
    struct space *s = local_pool_named(a->driver, order->pool);
    log_err(LOG_WARN, "a volume's record cannot be read", err, "volume", order->meta.name, "id", order->volume_id,
            NULL);
    int r = api_volume_spec(order, &known, err);
    if (r < 0)
        return r;
    /* As the node told it last: a growth that was only ordered has promised nothing here yet. */
    if (order->status.capacity_bytes)
        known->capacity_bytes = order->status.capacity_bytes;
    known->created_ns = order->meta.created_ns;
    r = local_restore(a->driver, s, known, err);
    if (r < 0)
        return r;
    volume_warn(a, order, "VolumeRestored", "its record on the disk was damaged, and is written anew from its order");
    return facts_read(a->driver, order, f, err);
}

static int look(struct agent *a, const struct api_volume *order, struct facts *f, struct err *err)
{
    int r = facts_read(a->driver, order, f, err);
    return r == -ERR_CORRUPT ? restore(a, order, f, err) : r;
}

/* INVALID: of a damaged one whose order this version cannot read either. */
static bool is_unreadable(int r)
{
    return r == -ERR_CORRUPT || r == -ERR_UNSUPPORTED || r == -ERR_INVALID;
}

/* Tried again all the same: a person may mend the file. */
static int tell_unreadable(struct agent *a, const struct api_volume *before, struct api_volume *now, struct err *why)
{
    struct err err;
    status_build_unreadable(now, why, clock_wall_ns());
    if (tell_with_news(a, before, now, &err) < 0)
        return err_copy(why, &err);
    return -(int)why->code;
}

int reconcile_volume(struct agent *a, const char *name, uint64_t *again_ns, struct err *err)
{
    auto_api_volume before = orders_get(a->orders, name);
    auto_api_volume now = orders_get(a->orders, name);
    if (!before || !now || now->status.phase == API_PHASE_RELEASED)
        return 0;
    auto_facts f = {0};
    struct err failure;
    int r = look(a, now, &f, err);
    if (is_unreadable(r))
        return tell_unreadable(a, before, now, err);
    if (r < 0)
        return r;
    struct outcome o = {.next = next_of(now, a->node, &f)};
    if (o.next == NEXT_IGNORE || o.next == NEXT_REFUSED)
        return 0;
    r = carry_out(a, now, &f, &o, &failure, err);
    if (r < 0)
        return r;
    set_active(a, now, &f);
    r = tell_with_news(a, before, now, err);
    /* A refusal is an answer, and the order ends with it; a release is never refused. */
    if (r == 0 && o.failure && (o.next == NEXT_RELEASE || !refusal_reason(o.failure)))
        r = err_copy(err, o.failure);
    if (r == 0)
        *again_ns = look_again_ns(a, now, &f);
    return r;
}
