/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - The state of a run that run.c shares with the files below it: engine.c, answer.c, marker.c,
 * confirm.c, begin.c, upload.c and checkpoint.c. home: the first worker's loop, except the fields beside the lock. */
#pragma once

#include "key.h"
#include "plan.h"
#include "run.h"
#include "transfer.h"
#include "util/heap.h"
#include <pthread.h>
#include <stdatomic.h>

/* States of an upload. upload_become() checks each step.
 *
 *   LOOKING      HEAD: does an object of this key exist, and who wrote it? Before a large file, before an object is
 *                replaced, and when a condition failed
 *   COMPARING    an object of our size exists: hash the file as the store hashed the object
 *   READING      the store returns nothing comparable: read the object back and hash it
 *   PROBING      a small file was sent: test the store's conditions on it, once a run
 *   CLEANING     abort an upload of an earlier run that cannot be continued
 *   NOTING       the intent is being flushed
 *   BEGINNING    the store is asked for an upload ID
 *   SENDING      parts are sent
 *   COMPLETING   the parts become the object
 *   DROPPING     the upload is aborted; then `after`
 *   PUTTING      a small file is sent whole
 *   CONFIRMING   the answer was not enough: HEAD
 *   WITHDRAWING  find an old marker, and delete it
 *   SWEEPING     sent; abort once more uploads that a killed run may have begun */
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

/* State of WITHDRAWING. NONE: no old marker is involved. SEEN: it exists, or HEAD is denied. */
enum marker_step { MARKER_NONE, MARKER_UNSEEN, MARKER_SEEN };

enum { NO_FILE = -1 };

/* The parts in which a file is hashed and sent. */
struct upload_parts {
    uint64_t bytes;            /* of each but the last */
    struct logbook_part *sums; /* owned; the file's digests: COMPARING, READING */
    struct store_part *list;   /* owned; of COMPLETING */
    unsigned count, next, left;
};

struct upload_sums {
    enum hash_kind kind; /* of the checksum that is sent to the store */
    struct digest whole;
    struct digest composite; /* over the digests of the parts */
    struct digest theirs;    /* COMPARING: the store's digest of the object; so is the next */
    struct digest theirs_composite;
};

/* The object in the bucket. */
struct upload_object {
    char seen[STORE_OBJECT_TAG_MAX]; /* the store_object_tag of the last object of this key that was seen or written */
    char replaces[STORE_OBJECT_TAG_MAX]; /* the tag of our object that will be replaced; "": none */
    char owner[OWNER_TEXT_MAX];          /* for the metadata: "<owner>-<size>-<token>" */
    bool is_own;                         /* LOOKING saw an object that this volume wrote */
    enum store_guard guard;              /* of the write */
    enum verdict_proof proof;            /* how the object was confirmed */
    bool existed_before;                 /* COMPARING, READING: the object was there before */
    bool needs_head;                     /* a condition failed: the object exists */
    bool differs;                        /* READING: its bytes are not the file's */
};

/* One file that is being exported, or the remains of an upload to remove (then `file` is NO_FILE). */
struct upload {
    struct export_run *run;     /* borrowed */
    struct list_node in_active; /* the run's */
    enum upload_state state;
    ssize_t file;      /* index into the plan */
    size_t group;      /* for a marker that this run creates: its checkpoint; else SIZE_MAX */
    struct str path;   /* borrowed from the plan, or from marker_path */
    char *marker_path; /* owned */
    char *key;         /* owned */
    char token[LOGBOOK_TOKEN_MAX];
    unsigned version; /* 1: the name itself */
    struct file_lease lease;
    uint64_t size_bytes;
    struct logbook_upload *multi; /* the logbook's; NULL: none */
    struct upload_parts part;
    struct upload_sums sum;
    struct upload_object object;
    unsigned in_flight;
    unsigned restarts;
    enum upload_after after;
    bool must_sweep;    /* an upload of this key with an unknown upload ID may exist */
    enum run_event how; /* SWEEPING: how it was sent */
    bool may_not_list;  /* CLEANING, DROPPING: the known upload is aborted, unknown ones stay */
    bool vanished;      /* CONFIRMING: the store no longer knows the upload ID */
    enum marker_step old_marker;
    bool failed;    /* `err` holds the first failure while others were still in flight */
    bool may_retry; /* and it was a passing one */
    struct err err;
    struct disk_job flush; /* NOTING */
};

struct group_left {
    uint64_t files;     /* not yet in the bucket */
    ssize_t marker;     /* the file of the plan that is the marker, or NO_FILE */
    struct err *failed; /* owned; the error of its first failed file: do not send its marker. NULL: none failed */
    struct err *barred; /* owned; why its old marker cannot be withdrawn; NULL: it can */
    bool owes_marker;   /* the marker is sent after all its files are in the bucket */
    bool is_others;     /* another writer made its marker in the bucket */
};

struct waiting_file {
    struct heap_node node; /* in the run's heap, the earliest first */
    uint64_t due_ns;
    size_t file;
};

struct stop_order {
    struct mail mail;
    struct export_run *run;
    struct worker *worker;
};

struct run_transfers {
    struct transfer_way way;
    struct transfer *all; /* owned */
    size_t count;
    struct list free;
    size_t out;
};

struct run_markers {
    struct group_left *groups; /* owned; per checkpoint */
    size_t *ready;             /* owned; checkpoints whose marker may be sent now */
    size_t ready_count;
    size_t ours;            /* checkpoints whose marker this run creates without a file: they are pending */
    size_t next_withdrawal; /* the next checkpoint whose old marker may have to be withdrawn */
    size_t withdrawals;     /* running withdrawals; no file begins before they end */
};

/* Facts about the store that the run has found out. */
struct run_store {
    enum hash_kind digest_kind; /* tried first: the store's best kind, or one that it accepted */
    bool size_only;             /* the store confirms no checksum */
    bool probed;                /* the store's conditions were tested, or are being tested */
    uint64_t unproven[2][2];    /* files written under GUARD_UNPROVEN: [in parts][over our own object] */
    uint64_t head_only_files;   /* and under GUARD_HEAD */
};

/* Of the files so far: enough of one kind in a row stop the run. */
struct run_outcomes {
    size_t successes, refusals; /* consecutive refusals before any success */
    size_t busy;                /* consecutive files for which the store was busy */
};

struct run_stop {
    atomic_bool requested;
    struct mail mail;
    struct stop_order *orders; /* owned; one a worker */
    size_t orders_left;        /* orders that have not come back */
    ssize_t left;              /* the first file that was stopped before its end; NO_FILE: none */
    bool over_deadline, gave_up, sent;
    bool is_refused; /* the destination refuses every file */
};

struct export_run {
    struct run_options o;
    struct loop *home; /* borrowed: the first worker's */
    struct export_plan plan;
    struct stat records;     /* of options.export_dir */
    struct logbook *logbook; /* owned */
    struct budget *budget;   /* owned */
    uint64_t memory_bytes;   /* its size */
    uint64_t memory_limit;   /* bytes; of the control group */
    struct rate rate;
    struct run_store store;
    uint64_t settle_ns, began_ns;
    struct run_transfers transfers;
    size_t next_file;
    struct list active; /* of struct upload, oldest first */
    size_t active_count;
    struct heap waiting; /* of struct waiting_file */
    unsigned *tries;     /* owned; per file */
    struct run_markers markers;
    struct run_outcomes outcomes;
    struct timer wake;
    struct timer deadline;
    struct watch leases;
    struct mail start_mail;
    struct run_stop stop;
    struct deferred pump;

    pthread_mutex_t lock; /* counts, ended */
    pthread_cond_t changed;
    struct verdict counts;
    bool ended;
};

/* ---- checkpoint.c ------------------------------------------------------------------------------------------------ */

void checkpoints_make(struct export_run *r);
void checkpoints_free(struct export_run *r);
bool checkpoint_is_marker(const struct export_run *r, size_t file);
void checkpoint_marker_path(const struct export_run *r, size_t group, struct sbuf *path);
bool checkpoint_makes_marker(const struct export_run *r, struct str path); /* `path`: not of a planned file */
/* Must old markers be deleted before files are sent? */
bool checkpoint_withdraws(const struct export_run *r);
/* The deletion of its old marker has ended. NULL: it is gone. */
void checkpoint_withdrawn(const struct upload *u, const struct err *why_not);
/* A file of the checkpoint has ended; the last one makes its marker ready. */
void checkpoint_settled(const struct upload *u, const struct err *failed); /* NULL: it is in the bucket */
const struct err *checkpoint_barred(const struct upload *u);               /* NULL: nothing bars this file */
bool checkpoint_is_others(const struct upload *u); /* another writer wrote the marker of its checkpoint in the bucket */
struct plan_options run_plan_options(const struct export_run *r); /* as the plan was made */
/* ERR_CHANGED: the directory differs from the plan. */
must_check int checkpoint_look_again(const struct export_run *r, size_t group, struct err *err);

/* ---- upload.c ---------------------------------------------------------------------------------------------------- */

struct upload *run_new_upload(struct export_run *r);
/* Derives the idempotency token of an object: the same file in the same state has the same token in every run. If
 * a run died between the bucket's answer and the logbook, the next one recognises its object by it. */
void run_make_token(struct str path, const struct stamp *s, char ret[LOGBOOK_TOKEN_MAX]);

void upload_become(struct upload *u, enum upload_state next);
bool upload_is_large(const struct upload *u);

/* Records in the logbook that the file's multipart upload ended. Does nothing without one. */
void upload_ended(struct upload *u);

/* Aborts its multipart upload and sweeps unknown uploads of its key; then does `after`. `why` is the reason, and
 * may be the upload's own error. */
void upload_drop(struct upload *u, enum upload_after after, const struct err *why);

/* The multipart upload was lost too often: the file fails. `why` may be the upload's own error. */
void upload_vanishes(struct upload *u, const struct err *why);

/* A free transfer with slices for this many bytes, or NULL. */
struct transfer *run_take_transfer(struct export_run *r, uint64_t bytes);
/* Fills in the fields of l->request that all requests of this upload share, and starts the transfer. */
void run_start_transfer(struct upload *u, struct transfer *l);
void run_return_transfer(struct export_run *r, struct transfer *l);
void run_again(struct export_run *r); /* chooses the next work at the end of this turn of the loop */

/* The ends of an upload. Each frees it. */
void run_file_sent(struct upload *own_u, enum run_event how);
void run_file_failed(struct upload *own_u, const struct err *err);
/* Its success cannot be recorded: the run starts no other file. */
void run_file_unrecorded(struct upload *own_u, struct err *err);
void run_file_waits(struct upload *own_u, uint64_t delay_ns, const char *why); /* delay 0: the default */
void run_file_left(struct upload *own_u); /* stopped before its end, or the remains of an upload are removed */

/* ---- begin.c ----------------------------------------------------------------------------------------------------- */

void run_start_file(struct export_run *r, size_t file);
/* Bytes of buffers for one part of a file. 0: the file is too large for any bucket, and fails. */
uint64_t run_memory_needed(const struct export_run *r, uint64_t size_bytes);
void run_add_chore(struct export_run *r, struct logbook_upload *m);
void upload_start(struct upload *u); /* the file was opened, or has none; chooses the first state */

/* Sets the key from its path and version. On failure nothing has changed. */
must_check int upload_set_key(struct upload *u, struct err *err);

/* Starts the file again; the store has nothing of it. */
void upload_begin_again(struct upload *u);

/* The same, after the store lost its multipart upload. */
void upload_lost(struct upload *u);

/* Sends the file: no object has its key, or `replaces` names the one to replace. */
void upload_send(struct upload *u);

/* ---- confirm.c: each decides what it becomes, or ends and frees it ----------------------------------------------- */

/* Did this volume or directory write the object of the answer `a`? Only under `conflict: fail`. */
bool upload_is_own(const struct upload *u, const struct transfer_answer *a);
/* A condition failed: HEAD the object. */
void upload_look(struct upload *u);
void upload_looked(struct upload *u, const struct transfer_answer *a);
void upload_compared(struct upload *u);
void upload_read(struct upload *u);
void upload_unreadable(struct upload *u); /* for `err` */
void upload_probed(struct upload *u, const struct transfer_answer *a);

/* The store accepted the object: does its answer prove that it has our bytes? */
void upload_confirm(struct upload *u, const struct transfer_answer *a);

/* Handles the answer to a HEAD, which followed a lost answer, an incomplete one, or a failed condition. */
void upload_confirmed(struct upload *u, const struct transfer_answer *a);

/* ---- marker.c ---------------------------------------------------------------------------------------------------- */

/* All other files of the checkpoint have ended: sends its marker, the user's file or an empty one. If a file failed
 * or the directory changed, fails the marker with that cause. */
void checkpoint_start_marker(struct export_run *r, size_t group);
/* Deletes the marker of the next checkpoint that is replaced. False when none is left. */
bool checkpoint_withdraw_next(struct export_run *r);
void checkpoint_answer(struct upload *u, const struct transfer_answer *a);

/* ---- answer.c ---------------------------------------------------------------------------------------------------- */

/* Submits every request that is possible now; false if no transfer was free. Does not free `u`. */
bool upload_feed(struct upload *u);
/* Handles the end of one of its transfers; may free it. */
void upload_answer(struct upload *u, const struct transfer *l);

/* ---- engine.c ---------------------------------------------------------------------------------------------------- */

void run_transfer_ended(struct transfer *l);
void run_pump(struct deferred *t);
