/* SPDX-License-Identifier: Apache-2.0 */
#include "objects.h"
#include "util/clock.h"
#include <assert.h>

enum { BUCKETS_FIRST = 64 };

void objects_init(struct objects *o, const struct kube_index *indexes, size_t index_count)
{
    *o = (struct objects){.seed = clock_random(), .indexes = indexes, .index_count = index_count};
    o->bucket_count = BUCKETS_FIRST;
    o->buckets = xcalloc(o->bucket_count, sizeof(struct object *));
    for (size_t i = 0; i < index_count; i++) {
        o->tables[i].bucket_count = BUCKETS_FIRST;
        o->tables[i].buckets = xcalloc(BUCKETS_FIRST, sizeof(struct index_value *));
    }
}

struct object *objects_find(const struct objects *o, struct str key)
{
    uint64_t h = str_hash(key, o->seed);
    for (struct object *x = o->buckets[h % o->bucket_count]; x; x = x->next)
        if (x->hash == h && str_eq(str_of(x->key), key))
            return x;
    return NULL;
}

/* ---- growth ------------------------------------------------------------------------------------------------------ */

static void grow(struct objects *o)
{
    size_t room = 2 * o->bucket_count;
    struct object **buckets = xcalloc(room, sizeof(struct object *));
    for (size_t i = 0; i < o->bucket_count; i++)
        for (struct object *x = o->buckets[i], *next; x; x = next) {
            next = x->next;
            x->next = buckets[x->hash % room];
            buckets[x->hash % room] = x;
        }
    free(o->buckets);
    o->buckets = buckets;
    o->bucket_count = room;
}

static void grow_table(struct index_table *t)
{
    size_t room = 2 * t->bucket_count;
    struct index_value **buckets = xcalloc(room, sizeof(struct index_value *));
    for (size_t i = 0; i < t->bucket_count; i++)
        for (struct index_value *v = t->buckets[i], *next; v; v = next) {
            next = v->next;
            v->next = buckets[v->hash % room];
            buckets[v->hash % room] = v;
        }
    free(t->buckets);
    t->buckets = buckets;
    t->bucket_count = room;
}

/* ---- indexes ----------------------------------------------------------------------------------------------------- */

static struct index_value *value_find(const struct objects *o, size_t index, struct str text, uint64_t h)
{
    const struct index_table *t = &o->tables[index];
    for (struct index_value *v = t->buckets[h % t->bucket_count]; v; v = v->next)
        if (v->hash == h && str_eq(str_of(v->text), text))
            return v;
    return NULL;
}

static struct index_value *value_make(struct objects *o, size_t index, struct str text)
{
    struct index_table *t = &o->tables[index];
    uint64_t h = str_hash(text, o->seed);
    struct index_value *v = value_find(o, index, text, h);
    if (v)
        return v;
    if (t->count >= t->bucket_count)
        grow_table(t);
    v = xcalloc(1, sizeof *v + text.len + 1);
    v->hash = h;
    memcpy(v->text, text.ptr, text.len);
    v->next = t->buckets[h % t->bucket_count];
    t->buckets[h % t->bucket_count] = v;
    t->count++;
    return v;
}

static void value_drop(struct index_table *t, struct index_value *own_value)
{
    struct index_value **at = &t->buckets[own_value->hash % t->bucket_count];
    while (*at != own_value)
        at = &(*at)->next;
    *at = own_value->next;
    t->count--;
    free(own_value);
}

static void unlink_from(struct objects *o, struct object *x, size_t index)
{
    struct object_link *l = &x->links[index];
    if (!l->value)
        return;
    if (l->prev)
        l->prev->links[index].next = l->next;
    else
        l->value->first = l->next;
    if (l->next)
        l->next->links[index].prev = l->prev;
    if (--l->value->count == 0)
        value_drop(&o->tables[index], l->value);
    *l = (struct object_link){0};
}

static void link_to(struct objects *o, struct object *x, size_t index, struct str text)
{
    struct object_link *l = &x->links[index];
    if (l->value && str_eq(str_of(l->value->text), text))
        return;
    unlink_from(o, x, index);
    if (!text.len)
        return;
    struct index_value *v = value_make(o, index, text);
    *l = (struct object_link){.value = v, .next = v->first};
    if (v->first)
        v->first->links[index].prev = x;
    v->first = x;
    v->count++;
}

struct object *objects_first(const struct objects *o, size_t index, struct str value, size_t *ret_count)
{
    assert(index < o->index_count);
    struct index_value *v = value_find(o, index, value, str_hash(value, o->seed));
    *ret_count = v ? v->count : 0;
    return v ? v->first : NULL;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

static struct object *object_new(struct objects *o, struct str key)
{
    if (o->count >= o->bucket_count)
        grow(o);
    struct object *x = xcalloc(1, sizeof *x + o->index_count * sizeof x->links[0]);
    x->key = str_dup(key);
    x->hash = str_hash(key, o->seed);
    x->next = o->buckets[x->hash % o->bucket_count];
    o->buckets[x->hash % o->bucket_count] = x;
    o->count++;
    return x;
}

bool objects_put(struct objects *o, struct str key, const json *tree, struct object **ret)
{
    struct object *x = objects_find(o, key);
    bool is_new = !x;
    if (is_new)
        x = object_new(o, key);
    o->text_bytes -= x->text_len;
    free(x->text);
    free(x->version);
    x->text = json_text(tree, 0);
    x->text_len = strlen(x->text);
    x->version = str_dup(json_member_str(json_at(tree, "metadata"), "resourceVersion"));
    o->text_bytes += x->text_len;
    auto_sbuf value;
    sbuf_init(&value, KUBE_KEY_MAX);
    for (size_t i = 0; i < o->index_count; i++) {
        sbuf_clear(&value);
        o->indexes[i].value(tree, &value);
        link_to(o, x, i, sbuf_str(&value));
    }
    *ret = x;
    return is_new;
}

static void object_free(struct object *x)
{
    free(x->text);
    free(x->version);
    free(x->key);
    free(x);
}

void objects_remove(struct objects *o, struct object *own_object)
{
    struct object **at = &o->buckets[own_object->hash % o->bucket_count];
    for (size_t i = 0; i < o->index_count; i++)
        unlink_from(o, own_object, i);
    while (*at != own_object)
        at = &(*at)->next;
    *at = own_object->next;
    o->count--;
    o->text_bytes -= own_object->text_len;
    object_free(own_object);
}

void objects_done(struct objects *o)
{
    for (size_t i = 0; i < o->bucket_count; i++)
        while (o->buckets[i])
            objects_remove(o, o->buckets[i]); // NOLINT(clang-analyzer-unix.Malloc): it is out of its bucket by then
    free(o->buckets);
    for (size_t i = 0; i < o->index_count; i++)
        free(o->tables[i].buckets);
}
