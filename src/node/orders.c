/* SPDX-License-Identifier: Apache-2.0 */
#include "orders.h"
#include "util/map.h"
#include "util/thread.h"

struct orders_entry {
    struct map_node node;
    char *name;              /* owned */
    char *text;              /* owned: the object as JSON, far smaller than its parsed tree */
    uint64_t version;        /* its resourceVersion; compared only to find the older of two replies */
    uint64_t listed_version; /* in the last list; 0: unknown */
    uint64_t written_ns;     /* when we wrote its status last */
    bool active;
    uint64_t list; /* the last list with it */
};

struct orders {
    pthread_mutex_t lock; /* guards the fields below */
    struct map entries;   /* owned; by name */
    uint64_t list;        /* number of the current or last list */
    size_t listed;        /* objects in it so far */
};

struct orders *orders_new(void)
{
    struct orders *s = xcalloc(1, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

static void remove_entry(struct orders *s, struct orders_entry *own_e)
{
    map_remove(&s->entries, &own_e->node);
    free(own_e->name);
    free(own_e->text);
    free(own_e);
}

void orders_free(struct orders *own_s)
{
    if (!own_s)
        return;
    struct orders_entry *e;
    map_foreach (&own_s->entries, e, node)
        remove_entry(own_s, e);
    map_done(&own_s->entries);
    pthread_mutex_destroy(&own_s->lock);
    free(own_s);
}

/* ---- under the lock ---------------------------------------------------------------------------------------------- */

static struct orders_entry *find_entry(const struct orders *s, const char *name)
{
    struct orders_entry *e;
    map_foreach_hash (&s->entries, str_hash(str_of(name), 0), e, node)
        if (strcmp(e->name, name) == 0)
            return e;
    return NULL;
}

static struct orders_entry *find_or_add(struct orders *s, const char *name)
{
    struct orders_entry *e = find_entry(s, name);
    if (e)
        return e;
    e = xcalloc(1, sizeof *e);
    e->name = str_dup(str_of(name));
    map_add(&s->entries, &e->node, str_hash(str_of(name), 0));
    return e;
}

static void update_entry(struct orders_entry *e, json *object, uint64_t version)
{
    if (e->text && version < e->version)
        return;
    json_remove(object, "metadata.managedFields");
    free(e->text);
    e->text = json_text(object, 0);
    e->version = version;
}

static uint64_t version_of(const json *object)
{
    struct str text;
    uint64_t version = 0;
    if (json_get_str(object, "metadata.resourceVersion", &text, ERR_IGNORED) < 0 ||
        str_to_u64(text, &version, ERR_IGNORED) < 0)
        return 0;
    return version;
}

/* ---- public ------------------------------------------------------------------------------------------------------ */

struct api_volume *orders_get(struct orders *s, const char *name)
{
    struct api_volume *v = NULL;
    auto_mem char *text = NULL;
    {
        auto_lock(&s->lock);
        const struct orders_entry *e = find_entry(s, name);
        if (!e)
            return NULL;
        text = str_dup(str_of(e->text));
    }
    auto_json j = NULL;
    if (json_parse(str_of(text), name, &j, ERR_IGNORED) < 0 || api_volume_read(j, &v, ERR_IGNORED) < 0)
        return NULL;
    return v;
}

uint64_t orders_written_ns(struct orders *s, const char *name)
{
    auto_lock(&s->lock);
    const struct orders_entry *e = find_entry(s, name);
    return e ? e->written_ns : 0;
}

bool orders_has(struct orders *s, const char *name)
{
    auto_lock(&s->lock);
    return find_entry(s, name) != NULL;
}

void orders_put(struct orders *s, const char *name, json *object, bool active, uint64_t written_ns)
{
    auto_lock(&s->lock);
    struct orders_entry *e = find_entry(s, name);
    if (!e)
        return; /* dropped since the request was sent */
    update_entry(e, object, version_of(object));
    e->active = active;
    e->written_ns = written_ns;
}

void orders_set_active(struct orders *s, const char *name, bool active)
{
    auto_lock(&s->lock);
    struct orders_entry *e = find_entry(s, name);
    if (e)
        e->active = active;
}

size_t orders_active(struct orders *s)
{
    size_t active = 0;
    struct orders_entry *e;
    auto_lock(&s->lock);
    map_foreach (&s->entries, e, node)
        active += e->active;
    return active;
}

void orders_drop(struct orders *s, const char *name)
{
    auto_lock(&s->lock);
    struct orders_entry *e = find_entry(s, name);
    if (e)
        remove_entry(s, e);
}

void orders_list_begin(struct orders *s)
{
    auto_lock(&s->lock);
    s->list++;
    s->listed = 0;
}

void orders_list_end(struct orders *s)
{
    struct orders_entry *e;
    auto_lock(&s->lock);
    map_foreach (&s->entries, e, node)
        if (e->list != s->list)
            remove_entry(s, e);
}

/* Returns whether it has changed since the last list. */
static bool put_listed(struct orders *s, const char *name, json *object)
{
    uint64_t version = version_of(object);
    auto_lock(&s->lock);
    struct orders_entry *e = find_or_add(s, name);
    bool changed = !version || version != e->listed_version;
    update_entry(e, object, version);
    e->listed_version = version;
    e->list = s->list;
    return changed;
}

int orders_list_page(struct orders *s, json *items, bool all,
                     void (*each)(void *ctx, const char *name, const struct err *err), void *ctx, struct err *err)
{
    s->listed += json_count(items);
    if (s->listed > ORDERS_MAX)
        return err_set(err, ERR_NO_SPACE, "the node has at least %zu volumes; the limit is %d", s->listed, ORDERS_MAX);
    for (size_t i = 0; i < json_count(items); i++) {
        struct err why;
        auto_api_volume v = NULL;
        json *object = (json *)json_item(items, i);
        if (api_volume_read(object, &v, &why) < 0) {
            auto_mem char *name = str_dup(json_member_str(json_at(object, "metadata"), "name"));
            each(ctx, name, &why);
        } else if (put_listed(s, v->meta.name, object) || all) {
            each(ctx, v->meta.name, NULL);
        }
    }
    return 0;
}

char **orders_names(struct orders *s, size_t *ret_count)
{
    struct orders_entry *e;
    auto_lock(&s->lock);
    char **names = xcalloc(s->entries.count + 1, sizeof *names);
    *ret_count = 0;
    map_foreach (&s->entries, e, node)
        names[(*ret_count)++] = str_dup(str_of(e->name));
    return names;
}
