/* SPDX-License-Identifier: Apache-2.0 */
#include "informer_private.h"

enum { OBJECTS_DEFAULT = 200000 };

/* Under the lock. */
static void wake(struct kube_informer *i, struct str key)
{
    for (struct waiter *w = i->waiters; w; w = w->next)
        if (str_eq(w->key, key)) {
            w->changed = true;
            pthread_cond_signal(&w->woken);
        }
}

int copy_put(struct kube_informer *i, json *tree, struct err *err)
{
    char buf[KUBE_KEY_MAX];
    struct str key;
    int r = object_key(tree, buf, &key, err);
    if (r < 0)
        return r;
    struct object *x = objects_find(&i->objects, key);
    if (x && str_eq(str_of(x->version), json_member_str(json_at(tree, "metadata"), "resourceVersion"))) {
        x->generation = i->generation; /* the loop's own field */
        return 0;
    }
    size_t most = i->options.objects_max ? i->options.objects_max : OBJECTS_DEFAULT;
    if (!x && i->objects.count >= most) {
        err_set(err, ERR_NO_SPACE, "more than %zu %s", most, i->options.resource->plural);
        return err_advise(err, 5007, "not all of them are seen");
    }
    json_remove(tree, "metadata.managedFields");
    if (i->options.transform)
        i->options.transform(i->options.ctx, tree);
    pthread_mutex_lock(&i->lock);
    bool is_new = objects_put(&i->objects, key, tree, &x);
    x->generation = i->generation;
    wake(i, key);
    pthread_mutex_unlock(&i->lock);
    void (*tell)(void *, struct str, const json *) = is_new ? i->options.on_added : i->options.on_updated;
    if (tell)
        tell(i->options.ctx, key, tree);
    return 0;
}

static void drop(struct kube_informer *i, struct object *x, struct str key, const json *last_known)
{
    pthread_mutex_lock(&i->lock);
    objects_remove(&i->objects, x);
    wake(i, key);
    pthread_mutex_unlock(&i->lock);
    if (i->options.on_deleted)
        i->options.on_deleted(i->options.ctx, key, last_known);
}

int copy_remove(struct kube_informer *i, const json *object, struct err *err)
{
    char buf[KUBE_KEY_MAX];
    struct str key;
    int r = object_key(object, buf, &key, err);
    if (r < 0)
        return r;
    struct object *x = objects_find(&i->objects, key);
    if (x)
        drop(i, x, key, object);
    return 0;
}

/* Our own text can always be read again. */
static json *tree_of(const struct object *x)
{
    struct err err;
    json *tree = NULL;
    if (json_parse((struct str){x->text, x->text_len}, "an object of ours", &tree, &err) < 0)
        abort();
    return tree;
}

void copy_sweep(struct kube_informer *i)
{
    for (size_t b = 0; b < i->objects.bucket_count; b++)
        for (struct object *x = i->objects.buckets[b], *next; x; x = next) {
            next = x->next;
            if (x->generation == i->generation)
                continue;
            auto_json last = tree_of(x);
            auto_mem char *key = str_dup(str_of(x->key));
            drop(i, x, str_of(key), last);
        }
}

void copy_resync(struct kube_informer *i, size_t slice, size_t slices)
{
    size_t count = i->objects.bucket_count;
    for (size_t b = count * slice / slices; b < count * (slice + 1) / slices; b++)
        for (struct object *x = i->objects.buckets[b]; x && i->options.on_updated; x = x->next) {
            auto_json tree = tree_of(x);
            i->options.on_updated(i->options.ctx, str_of(x->key), tree);
        }
}
