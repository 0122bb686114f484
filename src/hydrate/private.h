/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - the running job, as the files of this folder see it.
 *
 * Threads: "loop/N" (a lane each: the GETs and writes of its jobs), "driver" (the loop that turns the state: journal,
 * barriers, window, status, end), "pool/N" (barriers, verify reads, the end of the listing).
 * What is shared lies under `lock` or is an atomic; a job belongs to its lane's loop. */
#pragma once

#include "catalog/journal.h"
#include "feed.h"
#include "hydrate/engine.h"
#include "job.h"
#include "lane.h"
#include "large.h"
#include "pace.h"
#include "plan.h"
#include "util/clock.h"
#include <pthread.h>
#include <stdatomic.h>

#define TICK_NS (100 * NS_PER_MS)       /* of the driver: the window is looked at */
#define STARTS_SLACK_NS (5 * NS_PER_MS) /* a store that limits requests a second refuses what comes in bursts */

enum { FAULTS_MAX = 1000, WINDOW_START = 16, WINDOW_MAX = 512, STARTS_UNIT = 1000 };

struct hydrate {
    struct hydrate_options o;
    struct target *target; /* owned */
    struct pool *pool;     /* owned */
    struct budget *budget; /* owned */
    struct rate rate;
    struct rate starts; /* of GETs, in thousandths of one: the lower of what the two below allow */
    uint64_t starts_at_first, starts_since_ns;
    struct index *index;         /* owned */
    struct journal *journal;     /* owned */
    bool lists_anew;             /* frozen: the kept listing was out of date (anew.c) */
    struct {                     /* what gives way then, until it has */
        struct index *index;     /* owned */
        struct journal *journal; /* owned */
    } old;
    struct loop *loop; /* owned: the driver */
    struct lane lanes[WORKERS_MAX];
    struct worker *workers[WORKERS_MAX];
    size_t lane_count;
    int ended_fd; /* owned: eventfd */
    _Atomic bool ended;
    _Atomic bool stopping; /* give nothing out any more */

    /* under lock */
    pthread_mutex_t lock;
    struct plan plan;
    struct large *larges; /* with parts to give out, first come first */
    unsigned active;      /* units given out and not ended, larges that are open */
    struct pace pace;     /* what a store that refuses some GETs is sent */
    bool listing_over;
    bool second_round;  /* what waited for the end of the rest (conflict.c) is being given out */
    uint64_t *deferred; /* owned: ids */
    size_t deferred_count, deferred_next;
    bool is_cancelled;
    bool has_fatal;
    struct err fatal;
    struct hydrate_fault *faults; /* owned: ring of FAULTS_MAX */
    size_t fault_first, fault_count;
    uint64_t faults_unnamed;            /* that found no room there */
    struct hydrate_fault *first_faults; /* owned: HYDRATE_ERRORS_KEPT, for the status */
    size_t first_fault_count;
    uint64_t fault_codes; /* bits of enum err_code */
    bool is_stale;        /* an object failed that another listing may have otherwise */
    enum hydrate_phase phase;
    int64_t began_ns, started_ns, finished_ns;
    bool was_complete; /* frozen: an earlier run had filled this volume, and somebody may have written to it since */
    char manifest[HYDRATE_MANIFEST_MAX];
    struct hydrate_listing listing;

    pthread_mutex_t conflict_lock; /* one displaces at a time; guards the disk, not fields */

    _Atomic unsigned window;
    _Atomic bool is_crowded; /* a store has turned connections away while it served others */
    _Atomic unsigned paused; /* parts that wait for the disk, or for memory */
    _Atomic uint64_t objects_done, bytes_done, objects_failed, objects_missing, objects_kept, size_only, requests,
        hedged;
    _Atomic uint64_t refused;    /* GETs that were answered by 429 or 503 */
    _Atomic uint64_t served_ns;  /* monotonic: when one was last answered otherwise; at first, when the run began */
    _Atomic uint64_t received;   /* bytes of bodies, this run */
    _Atomic uint64_t on_its_way; /* bytes that running jobs have asked for */
    _Atomic uint64_t unsynced;   /* bytes written since the last barrier began */

    struct feed feed;

    /* the driver's loop */
    struct timer tick;
    unsigned ticks;
    struct mail drained;
    _Atomic bool is_drained_posted;
    struct mail begin;
    bool is_stopping_told;
    bool is_finishing;
    bool barrier_runs;
    uint64_t barrier_ns; /* when the last one ended */
    struct work barrier_work;
    struct err barrier_err;
    struct work finish_work;
    struct err finish_err;
    int sync_fd; /* owned: of the data's file system, opened before the first write */
    struct {
        uint64_t last_received;
        bool has_rested;       /* the first climb is over */
        double before, during; /* what was done without and with the step that is being tried */
        unsigned hold;         /* ticks in which nothing is tried */
        unsigned tried_from;   /* 0: nothing is tried */
        unsigned trial_ticks;
        bool tries_less;
        unsigned threshold; /* from here on it grows slowly: the server turned connections away; 0: it never did */
        unsigned epoch;     /* ticks of it */
        uint64_t quickest_ns;
        uint64_t ticked_ns, ticked_requests;
        struct web_tried tried; /* up to the last tick */
    } tune;
    _Atomic uint64_t rate_now; /* bytes a second */
    uint64_t rate_bytes, rate_ns;
    struct hydrate_status *scratch; /* owned */
};

/* fault.c */
/* A fault of the disk's ends the run, by the name of the object that met it. */
void hydrate_object_failed(struct hydrate *h, struct str path, const struct err *err, unsigned attempts);
void hydrate_fail(struct hydrate *h, const struct err *err);           /* the whole run; the first one counts */
bool fault_is_allowed(const struct hydrate *h, const struct err *err); /* onMissing: skip */
bool fault_is_fatal(const struct err *err); /* is this the disk's, so that no other object fares better? */

/* object.c: an object of the catalog, as the store and the target know it. */
enum { SOURCE_SINGLE = 0x8000 }; /* bit of index_entry.source: the URI named this very object */
struct str source_sub_path(const struct hydrate_source *s); /* without a slash at its end */
struct store *object_store(const struct hydrate *h, const struct index_entry *e);
void object_of_entry(struct lane *l, const struct index_entry *e, struct object *ret); /* its key is the lane's */
struct digest digest_wanted(const struct hydrate *h, const struct index_entry *e);
/* Of two checksums of one object: any rather than none, one that combines rather than one that does not. */
struct digest digest_better(const struct digest *listed, const struct digest *told);
int mismatch_set(struct err *err, const struct digest *want, const struct digest *got);
must_check int times_set(int fd, int64_t mtime_ns, struct err *err);
void object_is_whole(struct hydrate *h, uint64_t id);
struct target_file object_file(const struct index_entry *e);

/* conflict.c: after an object could not be written. 0: the way may be clear now, once more; 1: it waits, the unit is
 * over; negative: it failed, by *err. */
must_check int conflict_settle(struct lane *l, uint64_t id, const struct index_entry *e, struct err *err);

/* memory.c: fills in what of memory_bytes and concurrency_max is 0. ERR_NO_SPACE (CIS1516): `limit`, a control group's,
 * is too little for a run that nobody told to be small. */
must_check int memory_fit(struct hydrate_options *o, uint64_t limit, struct err *err);

/* window.c */
void window_tick(struct hydrate *h, uint64_t now_ns);
/* A GET. Any thread. Does the store serve most of them, so that one that was refused need not wait long? */
bool window_answered(struct hydrate *h, uint64_t sent_ns, uint64_t now_ns, bool refused);

/* barrier.c */
must_check int barrier_run(struct hydrate *h, struct err *err); /* blocks; one at a time */
void barrier_tick(struct hydrate *h);

/* anew.c: a listing that is known to be out of date gives way to a new one. */
/* Before the journal is opened: ends an exchange that was cut short, removes what else an earlier run left of one. */
must_check int anew_settle(const struct hydrate *h, struct err *err);
must_check int anew_begin(struct hydrate *h, const struct index_source *source, struct err *err);
must_check int anew_end(struct hydrate *h, struct err *err); /* all is listed. Blocks */

/* engine.c */
void driver_look(struct hydrate *h);  /* driver: is the run over? */
void driver_nudge(struct hydrate *h); /* any thread */
