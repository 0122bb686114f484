/* SPDX-License-Identifier: Apache-2.0 */
#include "informer_private.h"
#include "util/clock.h"
#include "util/metric.h"
#include "util/thread.h"

enum { OBJECTS_DEFAULT = 200000 };

/* Under the lock. */
static void wake(struct kube_informer *i, struct str key)
{
    struct informer_waiter *w;
    list_foreach (&i->waiters, w, node)
        if (str_eq(w->key, key)) {
            w->changed = true;
            pthread_cond_signal(&w->woken);
        }
}

void informer_copy_begin_list(struct kube_informer *i)
{
    i->generation++;
    i->current = 0;
    i->list_failed = false;
}

/* `s` NULL: the informer has no metrics. */
static void show(struct metric_series *s, size_t value)
{
    if (s)
        metric_set(s, (int64_t)value);
}

static void mark(struct kube_informer *i, struct informer_object *x)
{
    i->current += x->generation != i->generation;
    x->generation = i->generation; /* the loop's own field */
}

/* Objects that the running list has not shown yet do not count, since they may be deleted. Lists that fail in turn
 * could leave any number of them, so all together are limited, too. */
static int check_limit(struct kube_informer *i, const struct informer_object *x, struct err *err)
{
    size_t most = i->options.objects_max ? i->options.objects_max : OBJECTS_DEFAULT;
    if ((x && x->generation == i->generation) || (i->current < most && (x || i->objects.by_key.count < 2 * most)))
        return 0;
    show(i->over_limit, 1);
    atomic_store(&i->synced, false);
    return err_fail(err, ERR_NO_SPACE, CIS_API_LIMIT, "the API server has more than %zu %s", most,
                    i->options.resource->plural);
}

int informer_copy_put(struct kube_informer *i, json *tree, struct err *err)
{
    char buf[KUBE_KEY_MAX];
    struct str key;
    int r = object_key(tree, buf, &key, err);
    if (r < 0)
        return r;
    struct informer_object *x = informer_objects_find(&i->objects, key);
    r = check_limit(i, x, err);
    if (r < 0)
        return r;
    if (x && str_eq(str_of(x->version), json_member_str(json_at(tree, "metadata"), "resourceVersion"))) {
        mark(i, x);
        return 0;
    }
    if (!i->options.keep_managed_fields)
        json_remove(tree, "metadata.managedFields");
    if (i->options.transform)
        i->options.transform(i->options.ctx, tree);
    pthread_mutex_lock(&i->lock);
    bool is_new = informer_objects_put(&i->objects, key, tree, &x);
    mark(i, x);
    wake(i, key);
    pthread_mutex_unlock(&i->lock);
    show(i->count, i->objects.by_key.count);
    void (*report)(void *, struct str, const json *) = is_new ? i->options.on_added : i->options.on_updated;
    if (report)
        report(i->options.ctx, key, tree);
    return 0;
}

static void drop(struct kube_informer *i, struct informer_object *x, struct str key, const json *last_known)
{
    i->current -= x->generation == i->generation;
    pthread_mutex_lock(&i->lock);
    informer_objects_remove(&i->objects, x);
    wake(i, key);
    pthread_mutex_unlock(&i->lock);
    show(i->count, i->objects.by_key.count);
    if (i->options.on_deleted)
        i->options.on_deleted(i->options.ctx, key, last_known);
}

int informer_copy_remove(struct kube_informer *i, const json *object, struct err *err)
{
    char buf[KUBE_KEY_MAX];
    struct str key;
    int r = object_key(object, buf, &key, err);
    if (r < 0)
        return r;
    struct informer_object *x = informer_objects_find(&i->objects, key);
    if (x)
        drop(i, x, key, object);
    return 0;
}

/* json_text_exact() wrote the text: it is always valid. */
static json *tree_of(struct str text)
{
    json *tree = NULL;
    if (json_parse_any_text(text, "an object", &tree, ERR_IGNORED) < 0)
        abort();
    return tree;
}

void informer_copy_sweep(struct kube_informer *i)
{
    struct informer_object *x;
    map_foreach (&i->objects.by_key, x, node) {
        if (x->generation == i->generation)
            continue;
        auto_json last = tree_of((struct str){x->text, x->text_len});
        auto_mem char *key = str_dup(str_of(x->key));
        drop(i, x, str_of(key), last);
    }
    show(i->over_limit, 0);
}

/* ---- lookups: any thread ----------------------------------------------------------------------------------------- */

bool kube_informer_has_synced(const struct kube_informer *i)
{
    return atomic_load(&i->synced);
}

size_t kube_informer_count(const struct kube_informer *i)
{
    struct kube_informer *locked = (struct kube_informer *)i;
    auto_lock(&locked->lock);
    return i->objects.by_key.count;
}

size_t kube_informer_count_by(struct kube_informer *i, int index, struct str value)
{
    auto_lock(&i->lock);
    const struct index_value *v = informer_objects_with(&i->objects, (size_t)index, value);
    return v ? v->count : 0;
}

/* Copies the text under the lock, and parses it without the lock. */
json *kube_informer_get_by_key(struct kube_informer *i, struct str key)
{
    auto_mem char *text = NULL;
    size_t len = 0;
    {
        auto_lock(&i->lock);
        const struct informer_object *x = informer_objects_find(&i->objects, key);
        len = x ? x->text_len : 0;
        text = x ? str_dup((struct str){x->text, len}) : NULL;
    }
    return text ? tree_of((struct str){text, len}) : NULL;
}

json *kube_informer_get(struct kube_informer *i, struct str ns, struct str name)
{
    char key[KUBE_KEY_MAX];
    int n = snprintf(key, sizeof key, "%.*s%s%.*s", STR_FMT(ns), ns.len ? "/" : "", STR_FMT(name));
    return n < (int)sizeof key ? kube_informer_get_by_key(i, (struct str){key, (size_t)n}) : NULL;
}

/* ---- walks ------------------------------------------------------------------------------------------------------- */

struct key_list {
    char **all; /* owned, and so is each */
    size_t count;
};

static void keys_by(struct kube_informer *i, size_t index, struct str value, struct key_list *ret)
{
    const struct index_value *v = informer_objects_with(&i->objects, index, value);
    struct informer_object *x;
    ret->all = xcalloc(v ? v->count : 1, sizeof *ret->all);
    if (v)
        list_foreach (&v->objects, x, links[index].node)
            ret->all[ret->count++] = str_dup(str_of(x->key));
}

static void keys_of_all(struct kube_informer *i, struct key_list *ret)
{
    struct informer_object *x;
    ret->all = xcalloc(i->objects.by_key.count + 1, sizeof *ret->all);
    map_foreach (&i->objects.by_key, x, node)
        ret->all[ret->count++] = str_dup(str_of(x->key));
}

int kube_informer_each(struct kube_informer *i, int index, struct str value,
                       int (*each)(void *ctx, struct str key, const json *object), void *ctx)
{
    struct key_list keys = {0};
    int r = 0;
    pthread_mutex_lock(&i->lock);
    if (index < 0)
        keys_of_all(i, &keys);
    else
        keys_by(i, (size_t)index, value, &keys);
    pthread_mutex_unlock(&i->lock);
    for (size_t n = 0; n < keys.count; n++) {
        auto_json tree = r < 0 ? NULL : kube_informer_get_by_key(i, str_of(keys.all[n]));
        if (tree)
            r = each(ctx, str_of(keys.all[n]), tree);
        free(keys.all[n]);
    }
    free(keys.all);
    return r < 0 ? r : 0;
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* Poll interval for events without a wake-up: the first list, and the end of the client. */
#define LOOK_NS (250 * NS_PER_MS)

static void wait_a_while(struct kube_informer *i, struct informer_waiter *w, uint64_t until_ns)
{
    until_ns = min_u64(until_ns, clock_now_ns() + LOOK_NS);
    auto_lock(&i->lock);
    if (!w->changed)
        clock_cond_wait(&w->woken, &i->lock, until_ns);
    w->changed = false;
}

static int wait_until(struct kube_informer *i, struct informer_waiter *w, uint64_t timeout_ns,
                      bool (*is)(void *ctx, const json *object), void *ctx, json **ret, struct err *err)
{
    uint64_t until = clock_now_ns() + timeout_ns;
    for (;;) {
        auto_json now = kube_informer_get_by_key(i, w->key);
        if ((now || kube_informer_has_synced(i)) && is(ctx, now)) {
            *ret = take(&now);
            return 0;
        }
        if (atomic_load(&i->kube->stopping))
            return err_set(err, ERR_CANCELLED, "the client is stopping");
        if (clock_now_ns() >= until)
            return err_set(err, ERR_TIMEOUT, "'%.*s': timeout while waiting for its state", STR_FMT(w->key));
        wait_a_while(i, w, until);
    }
}

int kube_informer_wait(struct kube_informer *i, struct str key, uint64_t timeout_ns,
                       bool (*is)(void *ctx, const json *object), void *ctx, json **ret, struct err *err)
{
    struct informer_waiter w = {.key = key};
    pthread_cond_init(&w.woken, NULL);
    /* Listed before the first look: later changes wake it. */
    pthread_mutex_lock(&i->lock);
    list_add(&i->waiters, &w.node);
    pthread_mutex_unlock(&i->lock);
    int r = wait_until(i, &w, timeout_ns, is, ctx, ret, err);
    pthread_mutex_lock(&i->lock);
    list_remove(&i->waiters, &w.node);
    pthread_mutex_unlock(&i->lock);
    pthread_cond_destroy(&w.woken);
    return r;
}
