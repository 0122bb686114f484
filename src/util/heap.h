/* SPDX-License-Identifier: Apache-2.0 */
/* heap.h - binary heaps whose nodes are members of the ordered structs: the least is found at once, any is removed in
 * O(log n). home: the owner's thread or lock.
 *
 *     struct heap h = {.is_before = is_earlier};
 *     heap_add(&h, &item->node);
 *     struct item *next = heap_first(&h, struct item, node); */
#pragma once

#include "util/macro.h"
#include <stdbool.h>

struct heap_node {
    size_t place; /* in the heap, from 1; 0: in none */
};

struct heap {
    bool (*is_before)(const struct heap_node *a, const struct heap_node *b);
    struct heap_node **nodes; /* owned */
    size_t count, room;
};

void heap_add(struct heap *h, struct heap_node *n);    /* it is in none */
void heap_remove(struct heap *h, struct heap_node *n); /* its order may have changed since it was added */
void heap_update(struct heap *h, struct heap_node *n); /* its order has changed */
void heap_done(struct heap *h);                        /* frees the array; the nodes are the caller's */

/* The struct of the least node; NULL of an empty heap. */
#define heap_first(h, type, member) ((h)->count ? container_of((h)->nodes[0], type, member) : NULL)
