/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"
#include <fcntl.h>
#include <stdio.h>

#define LOOK_NS (5 * NS_PER_SECOND)
#define ABOUT_NS (30 * NS_PER_SECOND) /* between two writes for what neighbours do to the free space */
#define NOTICE_DIVISOR 100            /* of the pool's size: a smaller change of the free space is not worth a write */

/* ---- what the object says ---------------------------------------------------------------------------------------- */

static void take_uid(struct agent_pool *p, const struct api_meta *m)
{
    free(p->uid);
    p->uid = m->uid ? str_dup(str_of(m->uid)) : NULL;
}

void pool_found(struct agent_pool *p, const struct api_meta *m)
{
    pthread_mutex_lock(&p->lock);
    p->exists = true;
    take_uid(p, m);
    pthread_mutex_unlock(&p->lock);
}

static void set_seen(struct agent_pool *p, const json *object)
{
    struct err err;
    struct api_pool *seen;
    if (api_pool_read(object, &seen, &err) < 0) {
        log_err(LOG_ERROR, "our CisternPool cannot be read", &err, "pool", p->name, NULL);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->exists = true;
    p->ordered = seen->volumes_generation;
    take_uid(p, &seen->meta);
    bool is_told = strcmp(p->given_up ? p->given_up : "", seen->given_up ? seen->given_up : "") != 0;
    free(p->given_up);
    p->given_up = take(&seen->given_up);
    bool is_new = p->ordered != p->listed;
    pthread_mutex_unlock(&p->lock);
    api_pool_free(seen);
    if (is_new)
        kube_queue_add(p->agent->queue, STR(LIST_KEY));
    if (is_told)
        pool_wake(p);
}

static void on_seen(void *ctx, struct str key, const json *object)
{
    (void)key;
    set_seen(ctx, object);
}

void pool_wake(struct agent_pool *p)
{
    char key[32];
    snprintf(key, sizeof key, POOL_KEY "%zu", (size_t)(p - p->agent->pools));
    kube_queue_add(p->agent->queue, str_of(key));
}

static void on_gone(void *ctx, struct str key, const json *last)
{
    struct agent_pool *p = ctx;
    (void)key, (void)last;
    pthread_mutex_lock(&p->lock);
    p->exists = false;
    pthread_mutex_unlock(&p->lock);
    pool_wake(p);
}

static void on_trouble(void *ctx, const struct err *err, uint64_t wait_ns)
{
    struct agent_pool *p = ctx;
    char wait[TIME_TEXT_MAX];
    log_err(LOG_WARN, "the API server cannot be watched; tried again", err, "pool", p->name, "in",
            duration_text(wait_ns, wait), NULL);
}

/* One object by its name: a watch by label would make the API server look at every write for every node. */
void pool_watch(struct agent_pool *p)
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
                                      .on_trouble = on_trouble};
    p->informer = kube_informer_new(p->agent->kube, &o);
}

/* ---- what the disk says ------------------------------------------------------------------------------------------ */

static void set_text(char **field, const char *text)
{
    free(*field);
    *field = str_dup(str_of(text));
}

/* On the Node too, where people look first; its events go by its name, as the kubelet's do. */
static void tell(struct agent_pool *p, enum kube_event_type type, const char *reason, const char *message)
{
    pthread_mutex_lock(&p->lock);
    auto_mem char *uid = p->uid ? str_dup(str_of(p->uid)) : NULL;
    pthread_mutex_unlock(&p->lock);
    struct str node = str_of(p->agent->node);
    const struct kube_ref about[] = {
        {.resource = &kube_nodes, .name = node, .uid = node},
        {.resource = &api_pools, .name = str_of(p->name), .uid = uid ? str_of(uid) : STR_NULL}};
    for (size_t i = 0; i < (uid ? 2 : 1); i++)
        kube_event(p->agent->events, &about[i], type, reason, "pool %s: %s", space_name(p->space), message);
}

/* Each volume of it is other than before. */
static void look_at_volumes(struct agent_pool *p)
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
    set_text(&now->health, r < 0 ? "Unhealthy" : "Healthy");
    if (r < 0)
        set_text(&now->health_reason, err_line(err, line, sizeof line));
    if (r < 0 && !p->ailing)
        log_err(LOG_ERROR, "pool is not healthy", err, "pool", p->name, NULL);
    if (p->ailing != (r < 0)) {
        tell(p, r < 0 ? KUBE_WARNING : KUBE_NORMAL, r < 0 ? "PoolUnhealthy" : "PoolHealthy",
             r < 0 ? now->health_reason : "it is there again");
        look_at_volumes(p);
    }
    p->ailing = r < 0;
}

/* Of a pool that is not open, its UUID stays what it was: it is the memory of it. */
static void set_disk(const struct space *s, const struct witness *w, struct api_pool *now)
{
    struct err err;
    struct disk_facts facts;
    auto_fd dir = open(space_path(s), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0 && disk_probe(dir, &facts, &err) == 0)
        set_text(&now->fs_type, facts.fs_type);
    set_text(&now->path, space_path(s));
    set_text(&now->agent_version, CISTERN_VERSION);
    if (space_is_open(s)) {
        set_text(&now->pool_uuid, space_uuid(s));
        set_text(&now->backend, disk_backend_name(space_backend(s)));
    } else if (w->uuid) {
        set_text(&now->pool_uuid, w->uuid);
    }
}

static struct api_pool *document(const struct agent_pool *p)
{
    struct api_pool *now = api_pool_new();
    now->meta.name = str_dup(str_of(p->name));
    now->node = str_dup(str_of(p->agent->node));
    now->pool = str_dup(str_of(space_name(p->space)));
    return now;
}

static struct api_pool *look(struct agent_pool *p, const struct witness *w)
{
    struct err err;
    struct space_usage u = {0};
    struct api_pool *now = document(p);
    int r = space_is_here(p->space, &err);
    if (r == 0)
        r = space_usage(p->space, &u, &err);
    set_health(p, now, r, &err);
    set_disk(p->space, w, now);
    now->capacity_bytes = u.total_bytes;
    now->allocated_bytes = u.allocated_bytes;
    now->available_bytes = u.available_bytes;
    now->largest_volume_bytes = u.largest_bytes;
    now->volumes = u.volumes;
    pthread_mutex_lock(&p->lock);
    now->seen_volumes_generation = p->listed;
    now->quarantined = p->quarantined;
    pthread_mutex_unlock(&p->lock);
    return now;
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

static bool same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

/* Neighbours write and delete on the same disk all the time; a scheduler needs to know of it roughly. */
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
        was->quarantined != now->quarantined || !same_text(was->health, now->health) ||
        !same_text(was->health_reason, now->health_reason) || !same_text(was->pool_uuid, now->pool_uuid))
        return true;
    return !is_about_the_same(was, now) && clock_now_ns() - p->written_ns >= ABOUT_NS;
}

static void set_exists(struct agent_pool *p, bool exists)
{
    pthread_mutex_lock(&p->lock);
    p->exists = exists;
    pthread_mutex_unlock(&p->lock);
}

/* Before it is told how the pool is: events go to an object that is there. */
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
    pool_found(p, &made->meta);
    api_pool_free(take(&p->written)); /* of another object */
    return 0;
}

static int apply(struct agent_pool *p, const struct api_pool *now, struct err *err)
{
    auto_json body = api_pool_status_json(now);
    struct kube_request q = {.verb = KUBE_APPLY,
                             .resource = &api_pools,
                             .name = str_of(p->name),
                             .subresource = "status",
                             .body = body,
                             .field_manager = FIELD_MANAGER,
                             .force = true};
    return kube_call(p->agent->kube, &q, NULL, err);
}

static bool does_exist(struct agent_pool *p)
{
    pthread_mutex_lock(&p->lock);
    bool exists = p->exists;
    pthread_mutex_unlock(&p->lock);
    return exists;
}

/* ---- what it replaces -------------------------------------------------------------------------------------------- */

static void tell_replaced(struct agent_pool *p, const char *uuid, bool given_up)
{
    char text[256];
    snprintf(text, sizeof text, "%s takes the place of %s, %s; the volumes of %s are lost", space_uuid(p->space), uuid,
             given_up ? "which was given up" : "whose disk was ephemeral", uuid);
    log_event(LOG_WARN, "a pool was replaced", "pool", p->name, "uuid", space_uuid(p->space), "replaced", uuid, "by",
              given_up ? "an administrator" : "ephemeral", NULL);
    tell(p, KUBE_WARNING, "PoolReplaced", text);
    look_at_volumes(p);
}

/* One that is open already: an administrator gives up another that it has taken the place of. */
static int give_up(struct agent_pool *p, struct err *err)
{
    int r = 0;
    pthread_mutex_lock(&p->lock);
    auto_mem char *list = str_dup(str_of(p->given_up ? p->given_up : ""));
    pthread_mutex_unlock(&p->lock);
    struct str rest = str_of(list), item;
    while (r == 0 && str_split(&rest, ',', &item)) {
        auto_mem char *uuid = str_dup(str_trim(item));
        if (!spec_uuid_is_valid(str_of(uuid)) || strcmp(uuid, space_uuid(p->space)) == 0 ||
            space_replaces(p->space, uuid, true))
            continue;
        r = space_give_up(p->space, uuid, err);
        if (r == 0)
            tell_replaced(p, uuid, true);
    }
    return r;
}

/* What is here already opens without anybody's word. */
static int open_pool(struct agent_pool *p, struct witness *w, struct err *err)
{
    struct err why;
    if (local_open_pool(p->agent->driver, p->space, NULL, &why) == 0)
        return 0;
    bool asks = space_asks(p->space);
    int r = witness_ask(p, asks, w, err);
    if (r < 0 || !asks)
        return r;
    struct space_witness said = {.uuid = w->uuid, .who = w->who, .given_up = w->given_up};
    if (local_open_pool(p->agent->driver, p->space, &said, &why) == 0 && w->uuid &&
        space_replaces(p->space, w->uuid, false))
        tell_replaced(p, w->uuid, space_replaces(p->space, w->uuid, true));
    return 0; /* why it is not here is told as its health */
}

int reconcile_pool(struct agent_pool *p, uint64_t *again_ns, struct err *err)
{
    auto_with(witness_done) struct witness w = {0};
    int opened = space_is_open(p->space) ? give_up(p, err) : open_pool(p, &w, err);
    if (opened < 0)
        return opened;
    bool existed = does_exist(p);
    int r = existed ? 0 : create(p, err);
    if (r < 0)
        return err_wrap(err, "CisternPool '%s'", p->name);
    auto_api_pool now = look(p, &w);
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
    api_pool_free(p->written); /* only one thread at a time is at this key */
    p->written = take(&now);
    p->written_ns = clock_now_ns();
    return 0;
}
