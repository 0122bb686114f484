/* SPDX-License-Identifier: Apache-2.0 */
#include "heap.h"
#include "str.h"
#include <assert.h>

static void put(struct heap *h, struct heap_node *n, size_t at)
{
    h->nodes[at] = n;
    n->place = at + 1;
}

/* Moves nodes out of the way of `n`, from the free place `at` towards the top, or else towards the bottom. */
static void sift(struct heap *h, struct heap_node *n, size_t at)
{
    for (; at > 0 && h->is_before(n, h->nodes[(at - 1) / 2]); at = (at - 1) / 2)
        put(h, h->nodes[(at - 1) / 2], at);
    for (size_t child; (child = 2 * at + 1) < h->count; at = child) {
        if (child + 1 < h->count && h->is_before(h->nodes[child + 1], h->nodes[child]))
            child++;
        if (!h->is_before(h->nodes[child], n))
            break;
        put(h, h->nodes[child], at);
    }
    put(h, n, at);
}

void heap_add(struct heap *h, struct heap_node *n)
{
    assert(n->place == 0);
    if (h->count == h->room) {
        h->room = h->room ? 2 * h->room : 16;
        h->nodes = xrealloc(h->nodes, h->room, sizeof(struct heap_node *));
    }
    h->count++;
    sift(h, n, h->count - 1);
}

void heap_remove(struct heap *h, struct heap_node *n)
{
    assert(n->place > 0 && h->nodes[n->place - 1] == n);
    size_t at = n->place - 1;
    struct heap_node *last = h->nodes[--h->count];
    n->place = 0;
    if (last != n)
        sift(h, last, at);
}

void heap_update(struct heap *h, struct heap_node *n)
{
    assert(n->place > 0 && h->nodes[n->place - 1] == n);
    sift(h, n, n->place - 1);
}

void heap_done(struct heap *h)
{
    free(h->nodes);
    h->nodes = NULL;
    h->count = h->room = 0;
}
