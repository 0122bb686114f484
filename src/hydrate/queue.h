/* SPDX-License-Identifier: Apache-2.0 */
/* queue.h - Hands out the work: parts of large objects first, then the next object of the plan, then the objects that
 * were deferred. Wakes the lanes that wait for it, and the coordinator that waits for its end.
 * home: any thread, under `lock`, which also guards the fields of large objects (large.h). */
#pragma once

#include "catalog/index.h"
#include "plan.h"
#include "util/list.h"
#include <pthread.h>

struct hydrate;
struct hydrate_lane;
struct hydrate_large;

struct hydrate_queue {
    pthread_mutex_t lock;
    struct hydrate_plan plan;
    struct list larges;  /* large objects with parts to hand out, oldest first */
    unsigned active;     /* units handed out and not ended, and large objects that are open */
    bool is_listed;      /* no object will be added: the catalog is complete, or its listing failed */
    bool is_second_pass; /* the deferred objects are being handed out */
    uint64_t *deferred;  /* owned: ids */
    size_t deferred_count, deferred_next;
};

struct hydrate_unit {
    uint64_t id;
    struct index_entry entry;
    struct hydrate_large *large; /* NULL: a new object */
    uint32_t part;
};

void hydrate_queue_init(struct hydrate_queue *q, unsigned ranks);
void hydrate_queue_done(struct hydrate_queue *q);
/* 1: a unit was taken and counts as active; 0: none now. */
must_check int hydrate_queue_take(struct hydrate *h, struct hydrate_unit *ret, struct err *err);
/* Lock held. False: no part is left to hand out. */
bool hydrate_queue_next_part(struct hydrate_queue *q, struct hydrate_large **ret, uint32_t *ret_part);
void hydrate_queue_remove(struct hydrate_queue *q, struct hydrate_large *g); /* lock held; if it is in the list */
void hydrate_queue_unit_ended(struct hydrate_lane *l);                       /* the lane's loop */
/* Puts an object off until all others have ended. False: this is the second pass, or too many were deferred. */
bool hydrate_queue_defer(struct hydrate_queue *q, uint64_t id);
void hydrate_queue_listed(struct hydrate *h); /* the catalog is complete, or will never be */
/* Whether nothing runs and nothing is left to hand out. Begins the second pass when it is due. */
bool hydrate_queue_is_drained(struct hydrate *h, bool stopping);

/* Any thread. */
void coordinator_wake(struct hydrate *h); /* the run may be over */
void lane_wake(struct hydrate_lane *l);   /* there may be work, or the run stops */
void lanes_wake(struct hydrate *h);
