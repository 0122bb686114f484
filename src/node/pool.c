/* SPDX-License-Identifier: Apache-2.0 */
/* Reconciles a CisternPool of this node: opens the pool on the disk, and writes its status. */
#include "private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"
#include <fcntl.h>
#include <stdio.h>

#define LOOK_NS (5 * NS_PER_SECOND)
#define ABOUT_NS (30 * NS_PER_SECOND) /* between two writes for changes of the free space alone */
#define NOTICE_DIVISOR 100            /* of the pool's size: a smaller change of the free space is not worth a write */

/* The pool that was at this place before, as recorded in the API server. */
struct recorded_pool {
    char *uuid;     /* owned; NULL: none */
    char *who;      /* owned: the object that records it */
    char *given_up; /* owned; NULL: none */
};

static void take_uid(struct agent_pool *p, const struct api_meta *m)
{
    free(p->uid);
    p->uid = m->uid ? str_dup(str_of(m->uid)) : NULL;
}

static void note_found(struct agent_pool *p, const struct api_meta *m)
{
    auto_lock(&p->lock);
    p->exists = true;
    take_uid(p, m);
}

/* ---- the last pool at a path without an identity: in its CisternPool, or in the node's orders -------------------- */

static void recorded_pool_done(struct recorded_pool *w)
{
    free(w->uuid);
    free(w->who);
    free(w->given_up);
    *w = (struct recorded_pool){0};
}

static int ask_pool(struct agent_pool *p, struct recorded_pool *w, struct err *err)
{
    auto_json answer = NULL;
    auto_api_pool seen = NULL;
    struct kube_request q = {.verb = KUBE_GET, .resource = &api_pools, .name = str_of(p->name)};
    int r = kube_call(p->agent->kube, &q, &answer, err);
    if (r < 0)
        return r == -ERR_NOT_FOUND ? 0 : r;
    r = api_pool_read(answer, &seen, err);
    if (r < 0)
        return r;
    note_found(p, &seen->meta);
    w->given_up = take(&seen->given_up);
    if (seen->pool_uuid) {
        w->uuid = take(&seen->pool_uuid);
        w->who = str_dupf("CisternPool '%s'", p->name);
    }
    return 0;
}

struct agent_pool_search {
    struct agent_pool *of;
    struct recorded_pool *found;
    int64_t newest_ns;
    int code;
    struct err err;
};

/* Released volumes, and volumes that were never created, prove nothing. */
static bool is_evidence(const struct agent_pool_search *s, const struct api_volume *v)
{
    return strcmp(v->pool, pool_name(s->of->pool)) == 0 && v->status.phase != API_PHASE_RELEASED &&
           !api_condition_is(&v->status.conditions, API_PROVISIONED, API_FALSE);
}

/* The newest order wins: its pool is the last one. */
static void consider(struct agent_pool_search *s, const struct api_volume *v)
{
    if (!is_evidence(s, v) || (s->found->uuid && v->meta.created_ns <= s->newest_ns))
        return;
    free(s->found->uuid);
    free(s->found->who);
    s->newest_ns = v->meta.created_ns;
    s->found->uuid = str_dup(api_volume_pool_uuid(v));
    s->found->who = str_dupf("CisternVolume '%s'", v->meta.name);
}

static void on_page(void *ctx, json **own_items)
{
    struct agent_pool_search *s = ctx;
    for (size_t i = 0; own_items && s->code == 0 && i < json_count(*own_items); i++) {
        auto_api_volume v = NULL;
        s->code = api_volume_read(json_item(*own_items, i), &v, &s->err);
        if (s->code == 0)
            consider(s, v);
    }
}

static int ask_orders(struct agent_pool *p, struct recorded_pool *w, struct err *err)
{
    char selector[128];
    struct agent_pool_search s = {.of = p, .found = w};
    snprintf(selector, sizeof selector, NAME_LABEL_NODE "=%s", p->agent->node);
    struct kube_request q = {.verb = KUBE_LIST,
                             .resource = &api_volumes,
                             .label_selector = selector,
                             .page_size = 64,
                             .ctx = &s,
                             .on_page = on_page};
    int r = kube_call(p->agent->kube, &q, NULL, err);
    return r == 0 && s.code < 0 ? err_copy(err, &s.err) : r;
}

/* `orders_too`: read the orders if the CisternPool records none. */
static int recorded_pool_read(struct agent_pool *p, bool orders_too, struct recorded_pool *ret, struct err *err)
{
    struct recorded_pool w = {0};
    int r = ask_pool(p, &w, err);
    if (r == 0 && !w.uuid && orders_too)
        r = ask_orders(p, &w, err);
    if (r < 0) {
        recorded_pool_done(&w);
        return err_wrap(err, "finding the last pool of '%s'", p->name);
    }
    *ret = w;
    return 0;
}

/* ---- the CisternPool --------------------------------------------------------------------------------------------- */

static void set_exists(struct agent_pool *p, bool exists)
{
    auto_lock(&p->lock);
    p->exists = exists;
}

static void set_seen(struct agent_pool *p, const json *object)
{
    struct err err;
    struct api_pool *seen;
    if (api_pool_read(object, &seen, &err) < 0) {
        log_err(LOG_ERROR, "the node's CisternPool cannot be read", &err, "pool", p->name, NULL);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->exists = true;
    p->ordered = seen->volumes_generation;
    take_uid(p, &seen->meta);
    bool is_given_up = strcmp(p->given_up ? p->given_up : "", seen->given_up ? seen->given_up : "") != 0;
    free(p->given_up);
    p->given_up = take(&seen->given_up);
    bool is_new = p->ordered != p->listed;
    pthread_mutex_unlock(&p->lock);
    api_pool_free(seen);
    if (is_new)
        kube_queue_add(p->agent->queue, STR(LIST_KEY));
    if (is_given_up)
        agent_wake_pool(p);
}

static void on_seen(void *ctx, struct str, const json *object)
{
    set_seen(ctx, object);
}

void agent_wake_pool(struct agent_pool *p)
{
    char key[32];
    snprintf(key, sizeof key, POOL_KEY "%zu", (size_t)(p - p->agent->pools));
    kube_queue_add(p->agent->queue, str_of(key));
}

static void on_gone(void *ctx, struct str, const json *)
{
    struct agent_pool *p = ctx;
    set_exists(p, false);
    agent_wake_pool(p);
}

static void on_error(void *ctx, const struct err *err, uint64_t wait_ns)
{
    struct agent_pool *p = ctx;
    char wait[TIME_TEXT_MAX];
    log_err(LOG_WARN, "the API server cannot be watched; retrying", err, "pool", p->name, "in",
            duration_text(wait_ns, wait), NULL);
}

/* Watches one object by its name: with a label selector, the API server would test each write against the watch of each
 * node. */
void agent_watch_pool(struct agent_pool *p)
{
    char selector[API_POOL_NAME_MAX + 32];
    snprintf(selector, sizeof selector, "metadata.name=%s", p->name);
    struct kube_informer_options o = {.resource = &api_pools,
                                      .field_selector = selector,
                                      .objects_max = 16,
                                      .ctx = p,
                                      .on_added = on_seen,
                                      .on_updated = on_seen,
                                      .on_deleted = on_gone,
                                      .on_error = on_error};
    p->informer = kube_informer_new(p->agent->kube, &o);
}

/* ---- the disk ---------------------------------------------------------------------------------------------------- */

/* Also on the Node, where users look first; its uid in events is its name, as with the kubelet's. */
static void send_event(struct agent_pool *p, enum kube_event_type type, const char *reason, const char *message)
{
    pthread_mutex_lock(&p->lock);
    auto_mem char *uid = p->uid ? str_dup(str_of(p->uid)) : NULL;
    pthread_mutex_unlock(&p->lock);
    struct str node = str_of(p->agent->node);
    const struct kube_ref about[] = {
        {.resource = &kube_nodes, .name = node, .uid = node},
        {.resource = &api_pools, .name = str_of(p->name), .uid = uid ? str_of(uid) : STR_NULL}};
    for (size_t i = 0; i < (uid ? 2 : 1); i++)
        kube_event(p->agent->events, &about[i], type, reason, "pool %s: %s", pool_name(p->pool), message);
}

/* The state of each of its volumes has changed. */
static void wake_volumes(struct agent_pool *p)
{
    size_t count;
    auto_mem char **names = orders_names(p->agent->orders, &count);
    for (size_t i = 0; i < count; i++) {
        auto_mem char *name = names[i];
        kube_queue_add(p->agent->queue, str_of(name));
    }
}

static void set_health(struct agent_pool *p, struct api_pool *now, int r, const struct err *err)
{
    char line[ERR_LINE_MAX];
    text_set(&now->health, str_of(r < 0 ? "Unhealthy" : "Healthy"));
    if (r < 0)
        text_set(&now->health_reason, str_of(err_line(err, line, sizeof line)));
    if (r < 0 && !p->unhealthy)
        log_err(LOG_ERROR, "pool is not healthy", err, "pool", p->name, NULL);
    if (p->unhealthy != (r < 0)) {
        send_event(p, r < 0 ? KUBE_WARNING : KUBE_NORMAL, r < 0 ? "PoolUnhealthy" : "PoolHealthy",
                   r < 0 ? now->health_reason : "the pool is healthy again");
        wake_volumes(p);
    }
    p->unhealthy = r < 0;
}

/* A pool that is not open keeps its last UUID in the status: the only record of it. */
static void set_disk(const struct pool *p, const struct recorded_pool *w, struct api_pool *now)
{
    struct disk_facts facts;
    auto_fd dir = open(pool_path(p), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0 && disk_probe(dir, &facts, ERR_IGNORED) == 0)
        text_set(&now->fs_type, str_of(facts.fs_type));
    text_set(&now->path, str_of(pool_path(p)));
    text_set(&now->agent_version, str_of(CISTERN_VERSION));
    if (pool_is_open(p)) {
        text_set(&now->pool_uuid, str_of(pool_uuid(p)));
        text_set(&now->backend, str_of(spec_backend_name(pool_backend(p))));
    } else if (w->uuid) {
        text_set(&now->pool_uuid, str_of(w->uuid));
    }
}

static struct api_pool *document(const struct agent_pool *p)
{
    struct api_pool *now = api_pool_new();
    now->meta.name = str_dup(str_of(p->name));
    now->node = str_dup(str_of(p->agent->node));
    now->pool = str_dup(str_of(pool_name(p->pool)));
    return now;
}

static struct api_pool *observe(struct agent_pool *p, const struct recorded_pool *w)
{
    struct err err;
    struct pool_usage u = {0};
    struct api_pool *now = document(p);
    int r = pool_is_here(p->pool, &err);
    if (r == 0)
        r = pool_usage(p->pool, &u, &err);
    set_health(p, now, r, &err);
    set_disk(p->pool, w, now);
    now->capacity_bytes = u.total_bytes;
    now->allocated_bytes = u.allocated_bytes;
    now->available_bytes = u.available_bytes;
    now->largest_volume_bytes = u.largest_bytes;
    now->volumes = u.volumes;
    auto_lock(&p->lock);
    now->seen_volumes_generation = p->listed;
    now->quarantined = p->quarantined;
    return now;
}

/* ---- status ------------------------------------------------------------------------------------------------------ */

/* Other programs use the same disk all the time; a scheduler needs an approximate value only. */
static bool is_about_the_same(const struct api_pool *a, const struct api_pool *b)
{
    uint64_t free_a = a->available_bytes, free_b = b->available_bytes;
    return (free_a > free_b ? free_a - free_b : free_b - free_a) <= b->capacity_bytes / NOTICE_DIVISOR;
}

static bool is_worth_a_write(const struct agent_pool *p, const struct api_pool *now)
{
    const struct api_pool *was = p->written;
    if (!was || was->seen_volumes_generation != now->seen_volumes_generation || was->volumes != now->volumes ||
        was->allocated_bytes != now->allocated_bytes || was->capacity_bytes != now->capacity_bytes ||
        was->quarantined != now->quarantined || !text_same(was->health, now->health) ||
        !text_same(was->health_reason, now->health_reason) || !text_same(was->pool_uuid, now->pool_uuid))
        return true;
    return !is_about_the_same(was, now) && clock_now_ns() - p->written_ns >= ABOUT_NS;
}

/* Before the first status: events need an existing object. */
static int create(struct agent_pool *p, struct err *err)
{
    auto_api_pool now = document(p);
    auto_json body = api_pool_json(now);
    auto_json answer = NULL;
    auto_api_pool made = NULL;
    struct kube_request q = {.verb = KUBE_CREATE, .resource = &api_pools, .body = body, .field_manager = FIELD_MANAGER};
    int r = kube_call(p->agent->kube, &q, &answer, err);
    if (r == -ERR_EXISTS)
        return 0;
    if (r == 0)
        r = api_pool_read(answer, &made, err);
    if (r < 0)
        return r;
    note_found(p, &made->meta);
    api_pool_free(take(&p->written)); /* belongs to a deleted object */
    return 0;
}

static int apply(struct agent_pool *p, const struct api_pool *now, struct err *err)
{
    struct kube_request q = {.resource = &api_pools, .name = str_of(p->name), .field_manager = FIELD_MANAGER};
    return api_apply_status(p->agent->kube, q, api_pool_status_json(now), NULL, err);
}

static bool does_exist(struct agent_pool *p)
{
    auto_lock(&p->lock);
    return p->exists;
}

/* ---- replaced pools ---------------------------------------------------------------------------------------------- */

static void report_replaced(struct agent_pool *p, const char *uuid, bool given_up)
{
    char text[256];
    snprintf(text, sizeof text, "%s replaces %s, %s; the volumes of %s are lost", pool_uuid(p->pool), uuid,
             given_up ? "which was given up" : "whose disk was ephemeral", uuid);
    log_event(LOG_WARN, "a pool was replaced", "pool", p->name, "uuid", pool_uuid(p->pool), "old_uuid", uuid, "cause",
              given_up ? "given up" : "ephemeral disk", NULL);
    send_event(p, KUBE_WARNING, "PoolReplaced", text);
    wake_volumes(p);
}

/* For an open pool: an administrator gives up the pool that it replaced. */
static int give_up(struct agent_pool *p, struct err *err)
{
    int r = 0;
    pthread_mutex_lock(&p->lock);
    auto_mem char *list = str_dup(str_of(p->given_up ? p->given_up : ""));
    pthread_mutex_unlock(&p->lock);
    struct str rest = str_of(list), item;
    while (r == 0 && str_split(&rest, ',', &item)) {
        auto_mem char *uuid = str_dup(str_trim(item));
        if (!spec_uuid_is_valid(str_of(uuid)) || strcmp(uuid, pool_uuid(p->pool)) == 0 ||
            pool_replaces(p->pool, uuid, true))
            continue;
        r = pool_give_up(p->pool, uuid, err);
        if (r == 0)
            report_replaced(p, uuid, true);
    }
    return r;
}

/* A pool that is here opens without the API server. */
static int open_pool(struct agent_pool *p, struct recorded_pool *w, struct err *err)
{
    struct err why;
    if (driver_open_pool(p->agent->driver, p->pool, NULL, &why) == 0)
        return 0;
    bool asks = pool_asks(p->pool);
    int r = recorded_pool_read(p, asks, w, err);
    if (r < 0 || !asks)
        return r;
    struct pool_witness said = {.uuid = w->uuid, .who = w->who, .given_up = w->given_up};
    if (driver_open_pool(p->agent->driver, p->pool, &said, &why) == 0 && w->uuid &&
        pool_replaces(p->pool, w->uuid, false))
        report_replaced(p, w->uuid, pool_replaces(p->pool, w->uuid, true));
    return 0; /* its health reports why it is not here */
}

int agent_reconcile_pool(struct agent_pool *p, uint64_t *again_ns, struct err *err)
{
    auto_with(recorded_pool_done) struct recorded_pool w = {0};
    int opened = pool_is_open(p->pool) ? give_up(p, err) : open_pool(p, &w, err);
    if (opened < 0)
        return opened;
    /* A volume that was reconciled before its pool was open counts as absent, and nothing else reconciles it again. */
    if (!p->was_open && pool_is_open(p->pool))
        wake_volumes(p);
    p->was_open = pool_is_open(p->pool);
    bool existed = does_exist(p);
    int r = existed ? 0 : create(p, err);
    if (r < 0)
        return err_wrap(err, "CisternPool '%s'", p->name);
    auto_api_pool now = observe(p, &w);
    *again_ns = LOOK_NS;
    if (existed && !is_worth_a_write(p, now))
        return 0;
    r = apply(p, now, err);
    if (r < 0) {
        if (r == -ERR_NOT_FOUND)
            set_exists(p, false);
        return err_wrap(err, "CisternPool '%s'", p->name);
    }
    set_exists(p, true);
    api_pool_free(p->written); /* the queue runs one thread at a time for this key */
    p->written = take(&now);
    p->written_ns = clock_now_ns();
    return 0;
}
