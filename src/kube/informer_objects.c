/* SPDX-License-Identifier: Apache-2.0 */
#include "informer_objects.h"
#include "util/clock.h"
#include <assert.h>

void informer_objects_init(struct informer_objects *o, const struct kube_index *indexes, size_t index_count)
{
    *o = (struct informer_objects){.seed = clock_random(), .indexes = indexes, .index_count = index_count};
}

struct informer_object *informer_objects_find(const struct informer_objects *o, struct str key)
{
    struct informer_object *x;
    map_foreach_hash (&o->by_key, str_hash(key, o->seed), x, node)
        if (str_eq(str_of(x->key), key))
            return x;
    return NULL;
}

/* ---- indexes ----------------------------------------------------------------------------------------------------- */

const struct index_value *informer_objects_with(const struct informer_objects *o, size_t index, struct str text)
{
    struct index_value *v;
    assert(index < o->index_count);
    map_foreach_hash (&o->values[index], str_hash(text, o->seed), v, node)
        if (str_eq(str_of(v->text), text))
            return v;
    return NULL;
}

static struct index_value *value_make(struct informer_objects *o, size_t index, struct str text)
{
    struct index_value *v = (struct index_value *)informer_objects_with(o, index, text);
    if (v)
        return v;
    v = xcalloc(1, sizeof *v + text.len + 1);
    memcpy(v->text, text.ptr, text.len);
    map_add(&o->values[index], &v->node, str_hash(text, o->seed));
    return v;
}

static void unlink_from(struct informer_objects *o, struct informer_object *x, size_t index)
{
    struct index_value *v = take(&x->links[index].value);
    if (!v)
        return;
    list_remove(&v->objects, &x->links[index].node);
    if (--v->count > 0)
        return;
    map_remove(&o->values[index], &v->node);
    free(v);
}

static void link_to(struct informer_objects *o, struct informer_object *x, size_t index, struct str text)
{
    struct object_link *l = &x->links[index];
    if (l->value && str_eq(str_of(l->value->text), text))
        return;
    unlink_from(o, x, index);
    if (!text.len)
        return;
    l->value = value_make(o, index, text);
    list_add_first(&l->value->objects, &l->node);
    l->value->count++;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

static struct informer_object *object_new(struct informer_objects *o, struct str key)
{
    struct informer_object *x = xcalloc(1, sizeof *x + o->index_count * sizeof x->links[0]);
    x->key = str_dup(key);
    map_add(&o->by_key, &x->node, str_hash(key, o->seed));
    return x;
}

bool informer_objects_put(struct informer_objects *o, struct str key, const json *tree, struct informer_object **ret)
{
    struct informer_object *x = informer_objects_find(o, key);
    bool is_new = !x;
    if (is_new)
        x = object_new(o, key);
    free(x->text);
    free(x->version);
    x->text = json_text_exact(tree);
    x->text_len = strlen(x->text);
    x->version = str_dup(json_member_str(json_at(tree, "metadata"), "resourceVersion"));
    auto_sbuf value = SBUF(KUBE_KEY_MAX);
    for (size_t i = 0; i < o->index_count; i++) {
        sbuf_clear(&value);
        const struct kube_index *k = &o->indexes[i];
        if (k->value)
            k->value(tree, &value);
        else
            sbuf_add(&value, json_member_str(json_at(tree, k->at), k->member));
        link_to(o, x, i, sbuf_str(&value));
    }
    *ret = x;
    return is_new;
}

void informer_objects_remove(struct informer_objects *o, struct informer_object *own_object)
{
    for (size_t i = 0; i < o->index_count; i++)
        unlink_from(o, own_object, i);
    map_remove(&o->by_key, &own_object->node);
    free(own_object->text);
    free(own_object->version);
    free(own_object->key);
    free(own_object);
}

void informer_objects_done(struct informer_objects *o)
{
    struct informer_object *x;
    map_foreach (&o->by_key, x, node)
        informer_objects_remove(o, x);
    map_done(&o->by_key);
    for (size_t i = 0; i < o->index_count; i++)
        map_done(&o->values[i]);
}
