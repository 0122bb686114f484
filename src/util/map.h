/* SPDX-License-Identifier: Apache-2.0 */
/* map.h - a hash map whose nodes are members of the mapped structs, which hold the keys. A zeroed `struct map` is
 * empty. It grows by itself and never shrinks. home: the owner's thread or lock.
 *
 *     struct item *i;
 *     map_foreach_hash(&m, str_hash(key, seed), i, node)
 *         if (str_eq(i->key, key))
 *             return i;
 *     return NULL; */
#pragma once

#include "util/macro.h"
#include <stdbool.h>

struct map_node {
    struct map_node *next; /* in the same bucket */
    uint64_t hash;
};

struct map {
    struct map_node **buckets; /* owned */
    size_t bucket_count, count;
};

void map_add(struct map *m, struct map_node *n, uint64_t hash); /* does not look for an equal key */
void map_remove(struct map *m, struct map_node *n);
void map_done(struct map *m); /* frees the buckets; the nodes are the caller's */

/* The first or next node with `hash`. Below: of all nodes, in no order. NULL at the end. */
struct map_node *map_first(const struct map *m, uint64_t hash);
struct map_node *map_same(const struct map_node *n);
struct map_node *map_next(const struct map *m, const struct map_node *after); /* NULL: the first */

#define map_foreach_hash(m, h, x, member)                                                                              \
    for (struct map_node *node_##x = map_first(m, h);                                                                  \
         node_##x && ((x) = container_of(node_##x, __typeof__(*(x)), member), true); node_##x = map_same(node_##x))

/* The body may remove `x`, and no other node; it may not add. */
#define map_foreach(m, x, member)                                                                                      \
    for (struct map_node *node_##x = map_next(m, NULL), *next_##x;                                                     \
         node_##x && (next_##x = map_next(m, node_##x), (x) = container_of(node_##x, __typeof__(*(x)), member), true); \
         node_##x = next_##x)
