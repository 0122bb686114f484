/* SPDX-License-Identifier: Apache-2.0 */
/* informer.h - a local copy of the objects of one kind: listed once, updated by a watch, with callbacks.
 * home: the loop of its client, where callbacks run. Lookups from any thread: the copy has a lock.
 *
 * The copy has each object as JSON text, which needs a fraction of the memory of a tree. A lookup parses it for the
 * caller. metadata.managedFields is dropped by default. A watch that fails or ends is resumed from the last version,
 * with back-off; bookmarks renew the version. If the version is too old, the informer lists again and reports the
 * differences. Callbacks may skip changes of an object, but not its last state, and are never out of order.
 * Code: informer.c, and informer_copy.c for lookups. */
#pragma once

#include "kube/client.h"

struct kube_informer;

enum { KUBE_INDEXES_MAX = 4, KUBE_KEY_MAX = 512 };

/* The value by which an object can be found: the text of a field, a label or an annotation. */
struct kube_index {
    const char *at, *member; /* "metadata.labels", "app": the member may have dots */
    /* If set, used instead: appends the value to the empty `ret_value`; leaves it empty for none. Pure. */
    void (*value)(const json *object, struct sbuf *ret_value);
};

struct kube_informer_options {
    const struct kube_resource *resource; /* static */
    struct str ns;                        /* empty: all, or a resource without */
    const char *label_selector, *field_selector;
    struct kube_index indexes[KUBE_INDEXES_MAX]; /* the array ends at the first empty entry */
    /* Removes unneeded members, so that many objects need little memory; may be NULL. metadata.name, .namespace and
     * .resourceVersion have to stay. */
    void (*transform)(void *ctx, json *object);
    bool keep_managed_fields; /* transform removes metadata.managedFields where they are not needed */
    uint64_t silence_ns;      /* a watch without a byte for this time is started again; 0: 75 s */
    size_t objects_max;       /* 0: 200,000. With more, on_error gets ERR_NO_SPACE, and the copy is not complete */
    unsigned page_size;       /* 0: 500 */
    bool decides_nothing;     /* it may be incomplete: it is not in the metrics for the alerts about the limit */

    void *ctx;
    /* `key` is "namespace/name", or "name" without a namespace. Any callback may be NULL. */
    void (*on_added)(void *ctx, struct str key, const json *object);
    void (*on_updated)(void *ctx, struct str key, const json *object);
    void (*on_deleted)(void *ctx, struct str key, const json *last_known);
    /* The first list is in the copy, after its callbacks. Again after a time over the limit. */
    void (*on_synced)(void *ctx);
    /* A list or watch failed; it is tried again after `wait_ns`. Called once a minute at most for one cause. */
    void (*on_error)(void *ctx, const struct err *err, uint64_t wait_ns);
};

/* The loop, or any thread before it starts. Callbacks may not free it. The client must outlive it. */
struct kube_informer *kube_informer_new(struct kube *k, const struct kube_informer_options *o);
void kube_informer_free(struct kube_informer *i); /* no callback follows; NULL is fine */
DEFINE_AUTO(kube_informer, struct kube_informer, kube_informer_free)

/* ---- any thread -------------------------------------------------------------------------------------------------- */

/* True if the copy is complete except for the delay of the watch: then an object that it lacks does not exist. False
 * before the first list, and while there are more objects than objects_max. */
bool kube_informer_has_synced(const struct kube_informer *i);
size_t kube_informer_count(const struct kube_informer *i);

/* The caller frees. NULL: not found. */
json *kube_informer_get(struct kube_informer *i, struct str ns, struct str name);
json *kube_informer_get_by_key(struct kube_informer *i, struct str key);

/* Calls `each` for every object whose index number `index` has `value`; index < 0: all. Without the lock, so `each` may
 * wait; a NUL follows `key`. Objects that are added or deleted during the walk may be missed. A negative result of
 * `each` ends the walk and is returned. */
int kube_informer_each(struct kube_informer *i, int index, struct str value,
                       int (*each)(void *ctx, struct str key, const json *object), void *ctx);
size_t kube_informer_count_by(struct kube_informer *i, int index, struct str value);

/* Waits until `is` is true of the object (NULL: it does not exist), tested now and after each change. Not on the
 * loop. *ret gets its last state (NULL if it does not exist). ERR_TIMEOUT after `timeout_ns`, ERR_CANCELLED when
 * the client stops. Before has_synced the existence is unknown, so it waits. */
must_check int kube_informer_wait(struct kube_informer *i, struct str key, uint64_t timeout_ns,
                                  bool (*is)(void *ctx, const json *object), void *ctx, json **ret, struct err *err);
