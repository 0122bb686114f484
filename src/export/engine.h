/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h - the insides of a run: what run.c and upload.c share.
 * home: the first worker's loop, but for what stands beside the lock. */
#pragma once

#include "key.h"
#include "lane.h"
#include "plan.h"
#include "queue.h"
#include "run.h"
#include <pthread.h>
#include <stdatomic.h>

/* LOOKING     is there an object of this name, and who wrote it? Asked before a large file travels in vain, before an
 *             object of ours is replaced, and when a condition did not hold
 * COMPARING   there is an object of our size: the file's digests, as the store tells the object's
 * READING     the store tells nothing comparable: the object's bytes are read back and hashed
 * PROBING     a small file was sent: the store's conditions are tried on it, once a run
 * CLEANING    an upload that an earlier run began and nobody can go on with is aborted
 * NOTING      the intent is being flushed
 * BEGINNING   the store is asked for an upload
 * SENDING     parts travel
 * COMPLETING  the parts become the object
 * DROPPING    the upload is aborted; then `after` happens
 * PUTTING     a small file travels whole
 * CONFIRMING  the answer did not say enough: the store is asked what it holds
 * WITHDRAWING an old marker is looked for, and deleted
 * SWEEPING    sent; but the server may have been busy yet with what a killed run had asked for: once more */
enum upload_state {
    UPLOAD_NEW,
    UPLOAD_LOOKING,
    UPLOAD_COMPARING,
    UPLOAD_READING,
    UPLOAD_PROBING,
    UPLOAD_CLEANING,
    UPLOAD_NOTING,
    UPLOAD_BEGINNING,
    UPLOAD_SENDING,
    UPLOAD_COMPLETING,
    UPLOAD_DROPPING,
    UPLOAD_PUTTING,
    UPLOAD_CONFIRMING,
    UPLOAD_WITHDRAWING,
    UPLOAD_SWEEPING,
};

enum upload_after { AFTER_NOTHING, AFTER_WAIT, AFTER_FAIL, AFTER_LOOK };

/* WITHDRAWING; NONE: it is not about an old marker. Seen: it is there, or we may not look. */
enum marker_sight { MARKER_NONE, MARKER_UNSEEN, MARKER_SEEN };

enum { NO_FILE = -1 };

struct run;

/* One file on its way, or the remains of an upload that must go (then `file` is NO_FILE). */
struct upload {
    struct run *run;     /* borrowed */
    struct upload *next; /* the run's list */
    enum upload_state state;
    ssize_t file;      /* index into the plan */
    size_t group;      /* a marker that we make ourselves: its checkpoint; else SIZE_MAX */
    struct str path;   /* borrowed from the plan, or from marker_path */
    char *marker_path; /* owned */
    char *key;         /* owned */
    char uid[LOGBOOK_UID_MAX];
    unsigned version; /* 1: the name itself */
    struct hold hold;
    uint64_t size_bytes;
    uint64_t part_bytes;
    struct logbook_upload *multi; /* the logbook's; NULL: none */
    struct logbook_part *parts;   /* owned; the file's digests: COMPARING, READING */
    struct store_part *list;      /* owned; of COMPLETING */
    unsigned part_count, next_part, parts_left;
    unsigned in_flight;
    unsigned restarts;
    enum hash_kind digest_kind; /* what the store is told of the bytes */
    struct digest whole;        /* ours */
    struct digest composite;    /* ours, over the digests of the parts */
    struct digest theirs;       /* COMPARING: what the store told of the object, as are the next two */
    struct digest theirs_composite;
    char seen[OBJECT_TAG_MAX];     /* the object_tag of the object that was last seen or written */
    char replaces[OBJECT_TAG_MAX]; /* the object of ours that is to be replaced; "": none */
    char owner[OWNER_TEXT_MAX];    /* for the metadata: "<owner>-<size>-<uid>" */
    bool is_own;                   /* LOOKING saw an object that this volume wrote */
    enum store_guard guard;        /* of the write */
    enum verdict_proof proof;      /* how the object was confirmed */
    enum upload_after after;
    bool must_sweep;    /* there may be an upload of this key whose id nobody knows */
    enum run_event how; /* SWEEPING: how it was sent */
    bool met_another;   /* COMPARING, READING: the object was there before */
    bool must_look;     /* a condition did not hold: there is an object */
    bool differs;       /* READING: its bytes are not the file's */
    bool may_not_list;  /* CLEANING, DROPPING: what is known is aborted, what is not stays */
    bool vanished;      /* CONFIRMING: the upload was not known any more */
    enum marker_sight sight;
    bool failed;    /* `err` holds the first failure while others were still in flight */
    bool may_retry; /* and it was a passing one */
    struct err err;
    struct disk_job flush; /* NOTING */
};

struct group_left {
    uint64_t files;     /* not yet in the bucket */
    ssize_t marker;     /* the file of the plan that is the marker, or NO_FILE */
    struct err *failed; /* owned; why the first file of it failed: its marker must not be sent. NULL: none failed */
    struct err *barred; /* owned; its marker in the bucket cannot be withdrawn: why. NULL: nothing bars it */
    bool owes_marker;   /* the marker is to be sent when all the rest is there */
    bool is_others;     /* its marker in the bucket is another's */
};

struct stop_order {
    struct mail mail;
    struct run *run;
    struct worker *worker;
};

struct run {
    struct run_options o;
    struct loop *home; /* borrowed: the first worker's */
    struct plan plan;
    struct logbook *logbook; /* owned */
    struct budget *budget;   /* owned */
    uint64_t memory_bytes;   /* its size */
    struct rate rate;
    enum hash_kind digest_kind; /* what files begin with: the store's best, or what it was found to accept */
    bool size_only;             /* the store confirms no checksum */
    bool probed;                /* the store's conditions were tried, or are being */
    uint64_t unproven[2][2];    /* files written under GUARD_UNPROVEN: [in parts][over an object of ours] */
    uint64_t looked_files;      /* and under GUARD_LOOK */
    uint64_t settle_ns, deadline_ns;

    struct lane *lanes; /* owned */
    size_t lane_count;
    struct lane *free_lanes;
    struct lane **free_tail;
    size_t lanes_out;

    size_t next_file;
    struct upload *active; /* oldest first */
    size_t active_count;
    struct queue waiting;
    unsigned *tries;           /* owned; per file */
    struct group_left *groups; /* owned; per checkpoint */
    size_t *ready_markers;     /* owned; checkpoints whose marker may go now */
    size_t ready_count;
    size_t our_markers;     /* checkpoints whose marker is no file, and is to be made by this run: they are pending */
    size_t next_withdrawal; /* the checkpoint to look at next: is its marker to be withdrawn? */
    size_t withdrawals;     /* under way; no file begins before their end */
    size_t successes, refusals; /* refusals: in a row, before any success */
    struct timer wake;
    struct timer deadline;
    struct watch leases;
    struct mail start_mail, stop_mail;
    ssize_t left;                   /* the first file that was stopped in the middle; NO_FILE: none */
    struct stop_order *stop_orders; /* owned; one a worker */
    size_t stops_left;              /* orders that have not come back */
    struct tail pump;
    bool over_deadline, gave_up, stop_sent;
    atomic_bool stopping;

    pthread_mutex_t lock; /* counts, ended */
    pthread_cond_t changed;
    struct verdict counts;
    bool ended;
};

/* ---- engine.c, for upload.c and checkpoint.c --------------------------------------------------------------------- */

/* A free lane with slices for so many bytes, or NULL. */
struct lane *run_take_lane(struct run *r, uint64_t bytes);
/* Fills in what all requests of this upload have in common, and sends the lane on its way. */
void run_use_lane(struct upload *u, struct lane *l, enum lane_op op);
struct upload *run_new_upload(struct run *r);
/* The same file in the same state gets the same id in every run: a run whose predecessor died between the bucket's
 * answer and the logbook meets its own object, and knows it. */
void run_make_uid(struct str path, const struct stamp *s, char ret[LOGBOOK_UID_MAX]);
void run_start_file(struct run *r, size_t file);
void run_again(struct run *r);                             /* the pump runs at the end of this turn */
struct plan_options run_plan_options(const struct run *r); /* as the plan was made */

/* How an upload ends. Each frees it. */
void run_file_sent(struct upload *own_u, enum run_event how);
void run_file_failed(struct upload *own_u, const struct err *err, bool may_retry);
/* What it achieved cannot be recorded: the run begins no other. */
void run_file_unrecorded(struct upload *own_u, struct err *err);
void run_file_waits(struct upload *own_u, uint64_t delay_ns, const char *why); /* delay 0: as long as is usual */
void run_file_left(struct upload *own_u); /* stopped in the middle, or a remainder that is gone */

/* ---- engine.c, for run.c ----------------------------------------------------------------------------------------- */

void run_pump(struct tail *t);
void run_add_chore(struct run *r, struct logbook_upload *m);

/* ---- checkpoint.c ------------------------------------------------------------------------------------------------ */

void checkpoints_make(struct run *r);
void checkpoints_free(struct run *r);
bool checkpoint_is_marker(const struct run *r, size_t file);
/* A file of it has come to its end; the last one makes its marker ready. */
void checkpoint_settled(const struct upload *u, const struct err *failed); /* NULL: it is in the bucket */
/* Everything else of the checkpoint has come to its end: now its marker, the user's own file or an empty one of ours;
 * or, if a file failed or the directory is not what it was, a failure that says so. */
void checkpoint_start_marker(struct run *r, size_t group);
/* Takes the marker of the next checkpoint that is to be replaced out of the bucket. False when there is none left. */
bool checkpoint_withdraw_next(struct run *r);
void checkpoint_answer(struct upload *u, const struct lane_answer *a);
void checkpoint_withdrawn(struct upload *own_u, const struct err *why_not); /* NULL: it is gone */
const struct err *checkpoint_barred(const struct upload *u);                /* NULL: nothing bars this file */
bool checkpoint_is_others(const struct upload *u); /* another vouches for what its checkpoint holds in the bucket */

/* ---- upload.c ---------------------------------------------------------------------------------------------------- */

void upload_start(struct upload *u); /* opened, or nothing to open; decides its first state */
/* Asks for all that it wants now; false when no lane was free for it. Does not free it. */
bool upload_feed(struct upload *u);
void upload_answer(struct upload *u, const struct lane *l); /* a lane of it is back; may free it */
void upload_free(struct upload *u);                         /* NULL is fine */
