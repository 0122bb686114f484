/* SPDX-License-Identifier: Apache-2.0 */
/* lane.h - Takes units from the queue and runs a job for each, up to its share of the window.
 * home: its worker's loop ("loop/N"); functions say so where any thread may call them. */
#pragma once

#include "io/worker.h"
#include "tree.h"
#include "util/hash.h"
#include "util/list.h"
#include <stdatomic.h>

struct hydrate;

struct hydrate_lane {
    struct hydrate *h;
    unsigned number; /* in h->lanes */
    struct worker worker;
    bool worker_made;
    bool is_stopped;
    struct tree tree;
    struct list running;   /* jobs, oldest first */
    struct list free_jobs; /* the last used first */
    struct list due;       /* jobs whose backoff is over, oldest first; they still count as waiting */
    struct list heads;     /* large objects whose HEAD is running */
    unsigned running_count;
    unsigned summing; /* large objects whose checksum is asked for or read back: open, without a job */
    struct hash hash; /* of small objects */
    struct sbuf key;
    struct mail wake;
    _Atomic bool is_woken;
    struct deferred pump;
    struct timer hold; /* until the bandwidth limit lets the next request start */

    /* read by the window */
    _Atomic unsigned waiting;                  /* jobs in HYDRATE_JOB_BACKOFF */
    _Atomic unsigned refused;                  /* of these, refused by the store: they take no place in the window */
    _Atomic unsigned under_way;                /* running_count at the last pump */
    _Atomic uint64_t connections, turned_away; /* tried until the last pump */
    _Atomic uint64_t oldest_id;                /* + 1; 0: nothing runs */
    _Atomic uint64_t quickest_ns;              /* first byte of a GET in this epoch; 0: none yet */
};

must_check int lane_open(struct hydrate_lane *l, struct hydrate *h, unsigned number, struct err *err);
void lane_close(struct hydrate_lane *l);
