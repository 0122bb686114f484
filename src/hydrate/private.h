/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - the running job, as the files of this folder see it.
 *
 * Threads: "loop/N" (a lane each: the GETs and writes of its jobs), "driver" (the loop that turns the state: journal,
 * barriers, window, status, end), "pool/N" (barriers, verify reads, the end of the listing).
 * What is shared lies under `lock` or is an atomic; a job belongs to its lane's loop. */
#pragma once

#include "catalog/journal.h"
#include "hydrate/engine.h"
#include "io/worker.h"
#include "plan.h"
#include "store/list.h"
#include "tree.h"
#include "util/clock.h"
#include "util/budget.h"
#include <pthread.h>
#include <stdatomic.h>

enum { LANES_MAX = 8, FAULTS_MAX = 1000, WINDOW_START = 16, WINDOW_MAX = 512 };

/* ---- one large object ---------------------------------------------------------------------------------------------
 * home: its fields are under h->lock; fd and want are frozen once it is published. */
struct large {
    struct hydrate *h;
    struct lane *lane; /* where HEAD and the end run */
    uint64_t id;
    struct index_entry entry; /* strings in the catalog's mapping */
    char *path;               /* owned, NUL-terminated */
    int fd;                   /* owned */
    uint32_t align;           /* of O_DIRECT; 0: through the page cache */
    struct digest want;
    uint32_t part_count;
    uint32_t next; /* part to give out */
    uint32_t left; /* parts that are not there */
    uint32_t running;
    uint8_t *have;          /* owned: a byte a part */
    struct digest *digests; /* owned: of the parts */
    unsigned attempts;      /* of its worst part */
    bool failed;
    bool again; /* the whole was fetched a second time: its checksum was wrong once */
    struct err err;
    struct large *next_large; /* h->larges; before that: the lane's heads */
    struct store_job *head;
    bool is_listed; /* stands in h->larges */
    struct work verify;
    struct digest got;
};

/* ---- one small object or one part ---------------------------------------------------------------------------------
 * home: its lane's loop. It holds a slice from its first byte to its last write; without one it waits, and that wait is
 * all our back-pressure. */
enum job_state { JOB_IDLE, JOB_SLICE, JOB_GET, JOB_DRAIN, JOB_BACKOFF };
enum { JOB_SLICES = 3 }; /* one filling, two on their way to the disk */

struct job;
struct slice {
    struct disk_job io;
    struct job *job;
    void *bytes; /* owned: the budget's; NULL: none */
    size_t fill;
    uint64_t offset; /* in the file */
    bool busy;
};

struct job {
    struct lane *lane;
    struct job *prev, *next; /* of the lane's running ones, or its free ones */
    enum job_state state;
    uint64_t id;
    struct index_entry entry;
    struct large *large; /* NULL: a small object */
    uint32_t part;
    uint64_t offset, len, received;
    uint64_t skip; /* bytes of the next chunk that were taken before it was put back */
    struct slice slices[JOB_SLICES];
    int filling; /* slice; -1: none */
    unsigned busy;
    bool paused;
    struct hash hash;
    struct store_job *get;
    uint64_t on_its_way; /* what h->on_its_way counts of it */
    int io_error;        /* errno of a failed write */
    unsigned attempts;
    bool mismatched; /* its checksum was wrong once */
    uint64_t started_ns;
    struct timer backoff;
    struct budget_waiter waiter;
    struct mail granted;
    _Atomic bool is_granted; /* the mail is on its way */
    /* the answer, kept while writes drain */
    int code;
    bool may_retry;
    uint64_t retry_ns;
    struct err err;
};

/* ---- a worker and its jobs --------------------------------------------------------------------------------------- */
struct lane {
    struct hydrate *h;
    struct worker worker;
    bool worker_made;
    struct tree tree;
    struct job *running; /* oldest last */
    struct job *free_jobs;
    struct large *heads; /* whose checksum is being asked for */
    unsigned running_count;
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

enum barrier_state { BARRIER_NONE, BARRIER_RUNNING };

struct hydrate {
    struct hydrate_options o;
    struct target *target; /* owned */
    struct pool *pool;     /* owned */
    struct budget *budget; /* owned */
    struct rate rate;
    struct rate starts; /* of GETs, in GETs: where a store asks to be approached slowly */
    uint64_t starts_at_first, starts_since_ns;
    struct index *index;     /* owned */
    struct journal *journal; /* owned */
    struct loop *loop;       /* owned: the driver */
    struct lane lanes[LANES_MAX];
    struct worker *workers[LANES_MAX];
    size_t lane_count;
    int ended_fd; /* owned: eventfd */
    _Atomic bool ended;
    _Atomic bool stopping; /* give nothing out any more */

    /* under lock */
    pthread_mutex_t lock;
    struct plan plan;
    struct large *larges; /* with parts to give out, first come first */
    unsigned active;      /* units given out and not ended, larges that are open */
    bool listing_over;
    bool second_round;  /* what waited for the end of the rest (conflict.c) is being given out */
    uint64_t *deferred; /* owned: ids */
    size_t deferred_count, deferred_next;
    bool is_cancelled;
    bool has_fatal;
    struct err fatal;
    struct hydrate_fault *faults; /* owned: ring of FAULTS_MAX */
    size_t fault_first, fault_count;
    struct hydrate_fault *first_faults; /* owned: HYDRATE_ERRORS_KEPT, for the status */
    size_t first_fault_count;
    uint64_t fault_codes; /* bits of enum err_code */
    enum hydrate_phase phase;
    int64_t began_ns, started_ns, finished_ns;
    bool was_complete; /* frozen: an earlier run had filled this volume, and somebody may have written to it since */
    char manifest[HYDRATE_MANIFEST_MAX];
    struct hydrate_listing listing;

    pthread_mutex_t conflict_lock; /* one displaces at a time; guards the disk, not fields */

    _Atomic unsigned window;
    _Atomic bool slowed;     /* a store asked for less since the last tick */
    _Atomic unsigned paused; /* parts that wait for the disk, or for memory */
    _Atomic uint64_t objects_done, bytes_done, objects_failed, objects_missing, size_only, requests, hedged;
    _Atomic uint64_t received;   /* bytes of bodies, this run */
    _Atomic uint64_t on_its_way; /* bytes that running jobs have asked for */
    _Atomic uint64_t unsynced;   /* bytes written since the last barrier began */

    /* the listing: under feed_lock, or while no page can come */
    struct {
        pthread_mutex_t lock;
        struct listing *listing;
        size_t source;     /* that is being listed */
        struct index *all; /* owned; of a shard, while it lasts: what all shards have together */
        struct sbuf prefix;
        struct sbuf path;
        struct store_job *probe; /* before the listing; lane 0's loop */
        size_t strip;            /* bytes of a key that are not part of the path */
        bool single;             /* the URI names one object */
        bool cancelled;
        uint64_t space_bytes, space_files, block; /* what fits, what is there of ours included */
        uint64_t need_bytes, need_files;
        uint64_t excluded, largest_bytes;
        uint64_t began_ns; /* monotonic; 0: it goes on where an earlier run left it */
        uint64_t skipped;
        struct work finish;
        struct err err;
        struct mail next;
    } feed;

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
        unsigned threshold; /* from here on it grows slowly: the store asked for less; 0: it never did */
        unsigned epoch;     /* ticks of it */
        uint64_t quickest_ns;
        uint64_t ticked_ns, ticked_requests;
    } tune;
    _Atomic uint64_t rate_now; /* bytes a second */
    uint64_t rate_bytes, rate_ns;
    struct hydrate_status *scratch; /* owned */
};

/* fault.c */
void hydrate_object_failed(struct hydrate *h, struct str path, const struct err *err, unsigned attempts);
void hydrate_fail(struct hydrate *h, const struct err *err);           /* the whole run; the first one counts */
bool fault_is_allowed(const struct hydrate *h, const struct err *err); /* onMissing: skip */
bool fault_is_fatal(const struct err *err); /* is this the disk's, so that no other object fares better? */

/* feed.c */
must_check int feed_prepare(struct hydrate *h, struct err *err);
void feed_start(struct hydrate *h);  /* driver */
void feed_cancel(struct hydrate *h); /* any thread */
void feed_stop(struct hydrate *h);   /* lane 0's loop: the same for what is asked before the listing */
void feed_done(struct hydrate *h);

/* deal.c: a shard's listing goes into a catalog beside the run's, which takes its part of it when all is listed. */
must_check int deal_prepare(struct hydrate *h, struct err *err);
must_check int deal(struct hydrate *h, struct err *err); /* blocks */

/* Counts an object of the run against the space. ERR_NO_SPACE (CIS1510): it does not fit. */
must_check int feed_count(struct hydrate *h, uint64_t size_bytes, struct err *err);
enum { SOURCE_SINGLE = 0x8000 }; /* bit of index_entry.source: the URI named this very object */

/* lane.c */
must_check int lane_open(struct lane *l, struct hydrate *h, unsigned number, struct err *err);
void lane_close(struct lane *l);
void lane_kick(struct lane *l); /* any thread: there may be work, or an end of it */
void lanes_kick(struct hydrate *h);
void lane_unit_ended(struct lane *l); /* one of h->active is over */
void lane_pump(struct lane *l);

/* job.c */
void job_begin(struct lane *l, uint64_t id, const struct index_entry *e, struct large *large, uint32_t part);
void job_stop(struct job *j);
void job_pause(struct job *j, bool paused); /* counts; who calls also tells the GET */
void job_advance(struct job *j);            /* a write ended, or the GET did */
void job_free_slices(struct job *j);
void job_end(struct job *j);
void job_object_failed(struct job *j, const struct err *err);
void job_mismatch(struct job *j, const struct digest *want, const struct digest *got);
int mismatch_set(struct err *err, const struct digest *want, const struct digest *got);

/* small.c, part.c */
int small_data(struct job *j, const char *bytes, size_t len);
void small_whole(struct job *j, const struct digest *reply);
must_check int small_write(struct lane *l, uint64_t id, const struct index_entry *e, const void *bytes,
                           struct err *err);
must_check int marker_make(struct lane *l, const struct index_entry *e, struct err *err);
int part_data(struct job *j, const char *bytes, size_t len);
void part_whole(struct job *j);
void part_flush(struct job *j); /* what is left in the filling slice goes out */
void object_is_whole(struct hydrate *h, uint64_t id);

/* conflict.c: after an object could not be written. 0: the way may be clear now, once more; 1: it waits, the unit is
 * over; negative: it failed, by *err. */
must_check int conflict_settle(struct lane *l, uint64_t id, const struct index_entry *e, struct err *err);

/* large.c */
void large_begin(struct lane *l, uint64_t id, const struct index_entry *e);
bool large_take_part(struct hydrate *h, struct large **ret, uint32_t *ret_part); /* h->lock held */
void large_part_done(struct lane *l, struct large *g, uint32_t part, const struct digest *d);
void large_part_failed(struct lane *l, struct large *g, const struct err *err, unsigned attempts);
void large_part_dropped(struct lane *l, struct large *g); /* the run stops */
void large_stop(struct lane *l);
void object_of_entry(struct lane *l, const struct index_entry *e, struct object *ret);
struct digest digest_wanted(const struct hydrate *h, const struct index_entry *e);
/* Of two checksums of one object: any rather than none, one that combines rather than one that does not. */
struct digest digest_better(const struct digest *listed, const struct digest *told);
void times_set(int fd, int64_t mtime_ns);

/* window.c */
void window_tick(struct hydrate *h);

/* barrier.c */
must_check int barrier_run(struct hydrate *h, struct err *err); /* blocks; one at a time */
void barrier_tick(struct hydrate *h);

/* engine.c */
void driver_look(struct hydrate *h);  /* driver: is the run over? */
void driver_nudge(struct hydrate *h); /* any thread */
