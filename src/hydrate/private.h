/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - The running hydration, as the files of this directory share it.
 *
 * Threads: "loop/N" (one per lane: GETs and writes of its jobs), "coordinator" (coordinator.h), "pool/N" (barriers,
 * verifying reads, the end of the listing). A job belongs to its lane's loop. Each sub-struct names its own home and
 * lock; no function holds two of the locks, except that conflict_lock is taken before queue.lock. */
#pragma once

#include "barrier.h"
#include "catalog/journal.h"
#include "coordinator.h"
#include "fault.h"
#include "hydrate/engine.h"
#include "job.h"
#include "lane.h"
#include "large.h"
#include "lister.h"
#include "progress.h"
#include "queue.h"
#include "space.h"
#include "util/clock.h"
#include "window.h"
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

struct hydrate {
    struct hydrate_options o;
    struct target *target;       /* owned */
    struct thread_pool *threads; /* owned */
    struct budget *budget;       /* owned */
    struct rate rate;            /* --bandwidth */
    struct index *index;         /* owned */
    struct journal *journal;     /* owned */
    bool is_relisting;           /* frozen: the previous listing was out of date (relist.c) */
    struct {                     /* the previous listing, until the new one has replaced it */
        struct index *index;     /* owned */
        struct journal *journal; /* owned */
    } old;
    struct hydrate_lane lanes[WORKERS_MAX];
    struct worker *workers[WORKERS_MAX];
    size_t lane_count;
    int ended_fd; /* owned: eventfd */
    _Atomic bool ended;
    _Atomic bool stopping; /* hand out no more work */
    struct hydrate_lister lister;
    struct hydrate_space space;
    struct hydrate_queue queue;
    struct hydrate_window window;
    struct hydrate_progress progress;
    struct hydrate_faults faults;
    struct hydrate_coordinator coordinator;
    struct hydrate_barrier barrier;
    pthread_mutex_t conflict_lock; /* one thread at a time moves files out of the way; guards the disk, not fields */
};

/* object.c: an object of the catalog, as the store and the target see it. */
enum { SOURCE_SINGLE = 0x8000 }; /* bit of index_entry.source: the URI named this very object */
struct str source_sub_path(const struct hydrate_source *s); /* without a trailing slash */
struct store *object_store(const struct hydrate *h, const struct index_entry *e);
void object_of_entry(struct hydrate_lane *l, const struct index_entry *e,
                     struct store_object *ret); /* its key: l->key */
struct digest digest_wanted(const struct hydrate *h, const struct index_entry *e);
/* Of two checksums of one object: any rather than none, one that combines rather than one that does not. */
struct digest digest_better(const struct digest *listed, const struct digest *answered);
int mismatch_set(struct err *err, const struct digest *want, const struct digest *got);
must_check int times_set(int fd, int64_t mtime_ns, struct err *err);
void object_completed(struct hydrate *h, uint64_t id);
struct target_file object_file(const struct index_entry *e);

/* conflict.c: after an object could not be written. 0: try once more; 1: the object was deferred, the unit is over;
 * negative: it failed with *err and *ret_kind. */
must_check int conflict_resolve(struct hydrate_lane *l, uint64_t id, const struct index_entry *e,
                                enum hydrate_fault_kind *ret_kind, struct err *err);

/* engine.c: fills in memory_bytes and concurrency_max where they are 0. ERR_NO_SPACE (CIS_BUFFER_MEMORY): `limit`, of
 * the control group, is too small for the defaults. */
must_check int memory_defaults(struct hydrate_options *o, uint64_t limit, struct err *err);

/* coordinator.c: the state has nothing that the next run can use: not one object was listed, now or before. */
bool hydrate_is_void(const struct hydrate *h);

/* relist.c: replaces a listing that is out of date. */
/* Before the journal is opened: completes or discards an exchange that was interrupted. */
must_check int relist_recover(const struct hydrate *h, struct err *err);
must_check int relist_begin(struct hydrate *h, const struct index_source *source, struct err *err);
must_check int relist_finish(struct hydrate *h, struct err *err); /* the new listing is complete. Blocks */
