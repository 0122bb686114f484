/* SPDX-License-Identifier: Apache-2.0 */
#include "informer_private.h"
#include "util/clock.h"
#include <assert.h>

bool kube_informer_has_synced(const struct kube_informer *i)
{
    return atomic_load(&i->synced);
}

size_t kube_informer_count(const struct kube_informer *i)
{
    struct kube_informer *locked = (struct kube_informer *)i;
    pthread_mutex_lock(&locked->lock);
    size_t count = i->objects.count;
    pthread_mutex_unlock(&locked->lock);
    return count;
}

size_t kube_informer_count_by(struct kube_informer *i, int index, struct str value)
{
    size_t count;
    pthread_mutex_lock(&i->lock);
    objects_first(&i->objects, (size_t)index, value, &count);
    pthread_mutex_unlock(&i->lock);
    return count;
}

/* The text is copied under the lock, and read without it. */
json *kube_informer_get_by_key(struct kube_informer *i, struct str key)
{
    auto_mem char *text = NULL;
    size_t len = 0;
    struct err err;
    json *tree = NULL;
    pthread_mutex_lock(&i->lock);
    const struct object *x = objects_find(&i->objects, key);
    if (x) {
        len = x->text_len;
        text = str_dup((struct str){x->text, len});
    }
    pthread_mutex_unlock(&i->lock);
    if (text && json_parse((struct str){text, len}, "an object of ours", &tree, &err) < 0)
        abort();
    return tree;
}

json *kube_informer_get(struct kube_informer *i, struct str ns, struct str name)
{
    char key[KUBE_KEY_MAX];
    int n = snprintf(key, sizeof key, "%.*s%s%.*s", STR_FMT(ns), ns.len ? "/" : "", STR_FMT(name));
    return n < (int)sizeof key ? kube_informer_get_by_key(i, (struct str){key, (size_t)n}) : NULL;
}

/* ---- walks ------------------------------------------------------------------------------------------------------- */

struct keys {
    char **all; /* owned, and so is each */
    size_t count;
};

static void keys_by(struct kube_informer *i, size_t index, struct str value, struct keys *ret)
{
    size_t most, count = 0;
    const struct object *x = objects_first(&i->objects, index, value, &most);
    ret->all = xcalloc(most + 1, sizeof *ret->all);
    for (; x; x = x->links[index].next)
        ret->all[count++] = str_dup(str_of(x->key));
    ret->count = count;
}

static void keys_of_all(struct kube_informer *i, struct keys *ret)
{
    ret->all = xcalloc(i->objects.count + 1, sizeof *ret->all);
    ret->count = 0;
    for (size_t b = 0; b < i->objects.bucket_count; b++)
        for (const struct object *x = i->objects.buckets[b]; x; x = x->next)
            ret->all[ret->count++] = str_dup(str_of(x->key));
}

int kube_informer_each(struct kube_informer *i, int index, struct str value,
                       int (*each)(void *ctx, struct str key, const json *object), void *ctx)
{
    struct keys keys;
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

/* How soon a waiter notices what it is not woken for: the first list, and the client's end. */
#define LOOK_NS (250 * NS_PER_MS)

static void wait_a_while(struct kube_informer *i, struct waiter *w, uint64_t until_ns)
{
    until_ns = min_u64(until_ns, clock_now_ns() + LOOK_NS);
    pthread_mutex_lock(&i->lock);
    if (!w->changed)
        clock_cond_wait(&w->woken, &i->lock, until_ns);
    w->changed = false;
    pthread_mutex_unlock(&i->lock);
}

static int wait_until(struct kube_informer *i, struct waiter *w, uint64_t timeout_ns,
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
            return err_set(err, ERR_CANCELLED, "the client stops");
        if (clock_now_ns() >= until)
            return err_set(err, ERR_TIMEOUT, "'%.*s' was not what was waited for in time", STR_FMT(w->key));
        wait_a_while(i, w, until);
    }
}

int kube_informer_wait(struct kube_informer *i, struct str key, uint64_t timeout_ns,
                       bool (*is)(void *ctx, const json *object), void *ctx, json **ret, struct err *err)
{
    struct waiter w = {.key = key};
    pthread_cond_init(&w.woken, NULL);
    /* In the list before it looks: what changes after the look wakes it. */
    pthread_mutex_lock(&i->lock);
    w.next = i->waiters;
    i->waiters = &w;
    pthread_mutex_unlock(&i->lock);
    int r = wait_until(i, &w, timeout_ns, is, ctx, ret, err);
    pthread_mutex_lock(&i->lock);
    struct waiter **at = &i->waiters;
    while (*at != &w)
        at = &(*at)->next;
    *at = w.next;
    pthread_mutex_unlock(&i->lock);
    pthread_cond_destroy(&w.woken);
    return r;
}
