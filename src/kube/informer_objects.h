/* SPDX-License-Identifier: Apache-2.0 */
/* informer_objects.h - stores the objects of an informer by key and by the values of its indexes. It has no lock.
 * An object is stored as JSON text: a tree takes about six times as much memory. */
#pragma once

#include "kube/informer.h"
#include "util/list.h"
#include "util/map.h"

struct index_value {
    struct map_node node;
    struct list objects; /* by links[index].node */
    size_t count;
    char text[];
};

struct object_link {
    struct list_node node;
    struct index_value *value; /* NULL: not in this index */
};

struct informer_object {
    struct map_node node;
    char *text; /* owned */
    size_t text_len;
    char *version;              /* owned: metadata.resourceVersion */
    uint64_t generation;        /* number of the last list with this object */
    char *key;                  /* owned */
    struct object_link links[]; /* one for each index */
};

struct informer_objects {
    struct map by_key;
    uint64_t seed;
    const struct kube_index *indexes; /* borrowed: the informer's options */
    size_t index_count;
    struct map values[KUBE_INDEXES_MAX];
};

void informer_objects_init(struct informer_objects *o, const struct kube_index *indexes, size_t index_count);
void informer_objects_done(struct informer_objects *o);

struct informer_object *informer_objects_find(const struct informer_objects *o, struct str key);

/* Stores the tree under `key`, instead of an older one. True if the key is new. *ret is the object. */
bool informer_objects_put(struct informer_objects *o, struct str key, const json *tree, struct informer_object **ret);
void informer_objects_remove(struct informer_objects *o, struct informer_object *own_object);

/* The objects with this value in an index; NULL: none. */
const struct index_value *informer_objects_with(const struct informer_objects *o, size_t index, struct str text);
