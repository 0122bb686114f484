/* SPDX-License-Identifier: Apache-2.0 */
/* objects.h - the objects of an informer: by key, and by the values of its indexes. No lock of its own.
 * An object is kept as its JSON text: a tree of jansson's takes about six times that. */
#pragma once

#include "kube/informer.h"

/* Where an object hangs in one index. */
struct object_link {
    struct index_value *value; /* NULL: in none */
    struct object *next, *prev;
};

struct object {
    struct object *next; /* of the same bucket */
    uint64_t hash;
    char *text; /* owned */
    size_t text_len;
    char *version;              /* owned: metadata.resourceVersion */
    uint64_t generation;        /* of the list that last had it */
    char *key;                  /* owned */
    struct object_link links[]; /* one an index */
};

struct index_value {
    struct index_value *next; /* of the same bucket */
    uint64_t hash;
    struct object *first;
    size_t count;
    char text[];
};

struct index_table {
    struct index_value **buckets;
    size_t bucket_count, count;
};

struct objects {
    struct object **buckets;
    size_t bucket_count, count;
    size_t text_bytes;
    uint64_t seed;
    const struct kube_index *indexes; /* borrowed: the informer's options */
    size_t index_count;
    struct index_table tables[KUBE_INDEXES_MAX];
};

void objects_init(struct objects *o, const struct kube_index *indexes, size_t index_count);
void objects_done(struct objects *o);

struct object *objects_find(const struct objects *o, struct str key);

/* Puts the tree under `key` in place of what was there. True if it is new. *ret is the object. */
bool objects_put(struct objects *o, struct str key, const json *tree, struct object **ret);
void objects_remove(struct objects *o, struct object *own_object);

/* Of one index: the first of a value (then ->links[index].next), and how many there are. */
struct object *objects_first(const struct objects *o, size_t index, struct str value, size_t *ret_count);
