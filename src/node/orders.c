/* SPDX-License-Identifier: Apache-2.0 */
#include "orders.h"
#include <pthread.h>

struct entry {
    char *name;              /* owned */
    char *text;              /* owned: the object, as JSON: a fraction of what its tree takes */
    uint64_t version;        /* its resourceVersion; compared only to tell the older of two answers */
    uint64_t listed_version; /* the one of the last list; 0: it is not known */
    uint64_t written_ns;     /* when we wrote its status last */
    bool active;
    uint64_t list; /* the last one that it was in */
};

struct orders {
    pthread_mutex_t lock;  /* guards what follows */
    struct entry *entries; /* owned; by name */
    size_t count;
    uint64_t list; /* that is being taken in, or was */
    size_t listed; /* in it, so far */
};

struct orders *orders_new(void)
{
    struct orders *s = xcalloc(1, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

static void entry_done(struct entry *e)
{
    free(e->name);
    free(e->text);
}

void orders_free(struct orders *own_s)
{
    if (!own_s)
        return;
    for (size_t i = 0; i < own_s->count; i++)
        entry_done(&own_s->entries[i]);
    free(own_s->entries);
    pthread_mutex_destroy(&own_s->lock);
    free(own_s);
}

/* ---- under the lock ---------------------------------------------------------------------------------------------- */

/* Where `name` is, or would be. */
static size_t place_of(const struct orders *s, const char *name, bool *ret_found)
{
    size_t low = 0, high = s->count;
    *ret_found = false;
    while (low < high && !*ret_found) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(s->entries[middle].name, name);
        *ret_found = order == 0;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return high;
}

static struct entry *find(const struct orders *s, const char *name)
{
    bool found;
    size_t at = place_of(s, name, &found);
    return found ? &s->entries[at] : NULL;
}

static struct entry *find_or_add(struct orders *s, const char *name)
{
    bool found;
    size_t at = place_of(s, name, &found);
    if (found)
        return &s->entries[at];
    s->entries = xrealloc(s->entries, s->count + 1, sizeof *s->entries);
    memmove(&s->entries[at + 1], &s->entries[at], (s->count - at) * sizeof *s->entries);
    s->count++;
    s->entries[at] = (struct entry){.name = str_dup(str_of(name))};
    return &s->entries[at];
}

static void remove_at(struct orders *s, size_t at)
{
    entry_done(&s->entries[at]);
    s->count--;
    memmove(&s->entries[at], &s->entries[at + 1], (s->count - at) * sizeof *s->entries);
}

static void take_in(struct entry *e, json *object, uint64_t version)
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
    struct err err;
    struct str text;
    uint64_t version = 0;
    if (json_get_str(object, "metadata.resourceVersion", &text, &err) < 0 || str_to_u64(text, &version, &err) < 0)
        return 0;
    return version;
}

/* ---- from outside ------------------------------------------------------------------------------------------------ */

struct api_volume *orders_get(struct orders *s, const char *name)
{
    struct err err;
    struct api_volume *v = NULL;
    pthread_mutex_lock(&s->lock);
    const struct entry *e = find(s, name);
    auto_mem char *text = e ? str_dup(str_of(e->text)) : NULL;
    pthread_mutex_unlock(&s->lock);
    auto_json j = NULL;
    if (!text || json_parse(str_of(text), name, &j, &err) < 0 || api_volume_read(j, &v, &err) < 0)
        return NULL;
    return v;
}

uint64_t orders_written_ns(struct orders *s, const char *name)
{
    pthread_mutex_lock(&s->lock);
    const struct entry *e = find(s, name);
    uint64_t written_ns = e ? e->written_ns : 0;
    pthread_mutex_unlock(&s->lock);
    return written_ns;
}

bool orders_has(struct orders *s, const char *name)
{
    pthread_mutex_lock(&s->lock);
    bool has = find(s, name) != NULL;
    pthread_mutex_unlock(&s->lock);
    return has;
}

void orders_put(struct orders *s, const char *name, json *object, bool active, uint64_t written_ns)
{
    pthread_mutex_lock(&s->lock);
    struct entry *e = find(s, name);
    if (e) { /* else it was dropped meanwhile */
        take_in(e, object, version_of(object));
        e->active = active;
        e->written_ns = written_ns;
    }
    pthread_mutex_unlock(&s->lock);
}

void orders_set_active(struct orders *s, const char *name, bool active)
{
    pthread_mutex_lock(&s->lock);
    struct entry *e = find(s, name);
    if (e)
        e->active = active;
    pthread_mutex_unlock(&s->lock);
}

size_t orders_active(struct orders *s)
{
    size_t active = 0;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->count; i++)
        active += s->entries[i].active;
    pthread_mutex_unlock(&s->lock);
    return active;
}

void orders_drop(struct orders *s, const char *name)
{
    bool found;
    pthread_mutex_lock(&s->lock);
    size_t at = place_of(s, name, &found);
    if (found)
        remove_at(s, at);
    pthread_mutex_unlock(&s->lock);
}

void orders_list_begin(struct orders *s)
{
    pthread_mutex_lock(&s->lock);
    s->list++;
    s->listed = 0;
    pthread_mutex_unlock(&s->lock);
}

void orders_list_end(struct orders *s)
{
    pthread_mutex_lock(&s->lock);
    for (size_t i = s->count; i-- > 0;)
        if (s->entries[i].list != s->list)
            remove_at(s, i);
    pthread_mutex_unlock(&s->lock);
}

/* Has it changed since the last list? */
static bool take_listed(struct orders *s, const char *name, json *object)
{
    uint64_t version = version_of(object);
    pthread_mutex_lock(&s->lock);
    struct entry *e = find_or_add(s, name);
    bool changed = !version || version != e->listed_version;
    take_in(e, object, version);
    e->listed_version = version;
    e->list = s->list;
    pthread_mutex_unlock(&s->lock);
    return changed;
}

int orders_list_page(struct orders *s, json *items, bool all,
                     void (*each)(void *ctx, const char *name, const struct err *err), void *ctx, struct err *err)
{
    s->listed += json_count(items);
    if (s->listed > ORDERS_MAX)
        return err_set(err, ERR_NO_SPACE, "the node has %zu volumes or more, %d are the most", s->listed, ORDERS_MAX);
    for (size_t i = 0; i < json_count(items); i++) {
        struct err why;
        auto_api_volume v = NULL;
        json *object = (json *)json_item(items, i);
        if (api_volume_read(object, &v, &why) < 0) {
            auto_mem char *name = str_dup(json_member_str(json_at(object, "metadata"), "name"));
            each(ctx, name, &why);
        } else if (take_listed(s, v->meta.name, object) || all) {
            each(ctx, v->meta.name, NULL);
        }
    }
    return 0;
}

char **orders_names(struct orders *s, size_t *ret_count)
{
    pthread_mutex_lock(&s->lock);
    char **names = xcalloc(s->count + 1, sizeof *names);
    for (size_t i = 0; i < s->count; i++)
        names[i] = str_dup(str_of(s->entries[i].name));
    *ret_count = s->count;
    pthread_mutex_unlock(&s->lock);
    return names;
}
