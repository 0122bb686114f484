/* SPDX-License-Identifier: Apache-2.0 */
#include "queue.h"
#include "util/str.h"

static void swap(struct queue_item *a, struct queue_item *b)
{
    struct queue_item kept = *a;
    *a = *b;
    *b = kept;
}

void queue_push(struct queue *q, struct queue_item item)
{
    if (q->count == q->room) {
        q->room = q->room ? q->room * 2 : 64;
        q->items = xrealloc(q->items, q->room, sizeof *q->items);
    }
    size_t at = q->count++;
    q->items[at] = item;
    for (; at > 0 && q->items[at].due_ns < q->items[(at - 1) / 2].due_ns; at = (at - 1) / 2)
        swap(&q->items[at], &q->items[(at - 1) / 2]);
}

bool queue_first(const struct queue *q, uint64_t *ret_due_ns)
{
    if (q->count == 0)
        return false;
    *ret_due_ns = q->items[0].due_ns;
    return true;
}

struct queue_item queue_pop(struct queue *q)
{
    struct queue_item first = q->items[0];
    q->items[0] = q->items[--q->count];
    for (size_t at = 0, child; (child = 2 * at + 1) < q->count; at = child) {
        if (child + 1 < q->count && q->items[child + 1].due_ns < q->items[child].due_ns)
            child++;
        if (q->items[at].due_ns <= q->items[child].due_ns)
            break;
        swap(&q->items[at], &q->items[child]);
    }
    return first;
}

void queue_done(struct queue *q)
{
    free(q->items);
    *q = (struct queue){0};
}
