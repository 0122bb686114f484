/* SPDX-License-Identifier: Apache-2.0 */
/* queue.h - A heap of files that wait for a time, the earliest first. Pure. home: its owner's. */
#pragma once

#include "util/macro.h"
#include <stdbool.h>

struct queue_item {
    uint64_t due_ns;
    size_t file;
};

struct queue {
    struct queue_item *items; /* owned */
    size_t count, room;
};

void queue_push(struct queue *q, struct queue_item item);
bool queue_first(const struct queue *q, uint64_t *ret_due_ns); /* false: empty */
struct queue_item queue_pop(struct queue *q);                  /* not when empty */
void queue_done(struct queue *q);
