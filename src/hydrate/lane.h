/* SPDX-License-Identifier: Apache-2.0 */
/* lane.h - a worker that takes units and turns them into jobs, as many as its share of the window.
 * home: its worker's loop ("loop/N"); functions say so where any other thread may call them. */
#pragma once

#include "io/worker.h"
#include "tree.h"
#include "util/hash.h"
#include <stdatomic.h>

struct hydrate;
struct job;
struct large;

struct lane {
    struct hydrate *h;
    unsigned number; /* of h->lanes */
    struct worker worker;
    bool worker_made;
    struct tree tree;
    struct job *running; /* oldest last */
    struct job *free_jobs;
    struct job *due;     /* to be sent again, first come first; they count as waiting */
    struct large *heads; /* whose checksum is being asked for */
    unsigned running_count;
    _Atomic unsigned waiting;                  /* of them, those that wait for another attempt */
    _Atomic unsigned refused;                  /* of these, those that the store refused: they take no place */
    _Atomic unsigned under_way;                /* as running_count was when it last looked for work ... */
    _Atomic uint64_t connections, turned_away; /* ... and those that it had tried */
    unsigned summing; /* large ones whose checksum is asked for, or read back: open, and without a job */
    struct hash hash; /* of small objects */
    struct sbuf key;
    struct mail kick;
    _Atomic bool is_kicked;
    struct tail pump;
    struct timer hold; /* until the cap's debt is paid */
    bool is_stopped;
    _Atomic uint64_t oldest_id;   /* + 1; 0: nothing runs */
    _Atomic uint64_t quickest_ns; /* first byte of a GET in this epoch; 0: none yet */
};

must_check int lane_open(struct lane *l, struct hydrate *h, unsigned number, struct err *err);
void lane_close(struct lane *l);
void lane_kick(struct lane *l); /* any thread: there may be work, or an end of it */
void lanes_kick(struct hydrate *h);
void lane_unit_ended(struct lane *l); /* one of h->active is over */
void lane_pump(struct lane *l);
unsigned lane_share(const struct lane *l); /* of the window; all lanes' are together the window */
