/* SPDX-License-Identifier: Apache-2.0 */
/* list.h - lists and queues whose nodes are members of the listed structs. A zeroed `struct list` is empty; it
 * allocates nothing, and copying it moves it. home: the owner's thread or lock. */
#pragma once

#include "util/macro.h"
#include <stdbool.h>

struct list_node {
    struct list_node *prev, *next;
};

struct list {
    struct list_node *first, *last;
};

/* Before `before`, or at the end if that is NULL. */
static inline void list_insert(struct list *l, struct list_node *n, struct list_node *before)
{
    *n = (struct list_node){.prev = before ? before->prev : l->last, .next = before};
    *(n->prev ? &n->prev->next : &l->first) = n;
    *(before ? &before->prev : &l->last) = n;
}

static inline void list_add(struct list *l, struct list_node *n)
{
    list_insert(l, n, NULL);
}

static inline void list_add_first(struct list *l, struct list_node *n)
{
    list_insert(l, n, l->first);
}

static inline void list_remove(struct list *l, struct list_node *n)
{
    *(n->prev ? &n->prev->next : &l->first) = n->next;
    *(n->next ? &n->next->prev : &l->last) = n->prev;
    *n = (struct list_node){0};
}

static inline bool list_is_empty(const struct list *l)
{
    return !l->first;
}

static inline struct list_node *list_pop_node(struct list *l)
{
    struct list_node *n = l->first;
    if (!n)
        return NULL;
    l->first = n->next;
    *(n->next ? &n->next->prev : &l->last) = NULL;
    *n = (struct list_node){0};
    return n;
}

/* The struct of a node; NULL of NULL. */
#define list_entry(node, type, member)                                                                                 \
    ({                                                                                                                 \
        __typeof__(node) node_ = (node);                                                                               \
        node_ ? container_of(node_, type, member) : NULL;                                                              \
    })
#define list_first(l, type, member) list_entry((l)->first, type, member)
#define list_pop(l, type, member) list_entry(list_pop_node(l), type, member) /* removes the first; NULL if empty */

/* The body may remove `x`, and no other node. */
#define list_foreach(l, x, member)                                                                                     \
    for (struct list_node *node_##x = (l)->first, *next_##x;                                                           \
         node_##x && (next_##x = node_##x->next, (x) = container_of(node_##x, __typeof__(*(x)), member), true);        \
         node_##x = next_##x)
