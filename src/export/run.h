/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - Runs an export, from the walk of the directory to the verdict. home: run_open, run_wait and run_close
 * block; call them on one thread without a loop. run_stop: any thread. Callbacks run on run_open's thread and on the
 * first worker's loop, one at a time. SIGIO must be blocked in every thread of the process before run_open: leases
 * use it.
 *
 * Limits: bytes in flight by the memory of the control group, requests by `concurrency`, files to send by
 * PICK_FILES_MAX.
 * Code: run.c, and engine.c for run_stop(). */
#pragma once

#include "export/verdict.h"
#include "spec/spec.h"
#include "store/store.h"

struct walk_file;

enum run_event {
    RUN_SENT,    /* confirmed by the bucket */
    RUN_THERE,   /* the bucket has these bytes under this key already */
    RUN_SKIPPED, /* a bucket cannot store it; `note` names its type */
    RUN_WAITING, /* another process can write it: retried; reported once */
    RUN_FAILED,  /* `err` says why */
    RUN_PLANNED, /* with dry_run: it would be sent */
};

struct run_result {
    enum run_event event;
    struct str path; /* borrowed */
    struct str key;  /* of the object; empty: not known */
    uint64_t size_bytes;
    const char *note;      /* may be NULL */
    const struct err *err; /* RUN_FAILED */
};

struct run_options {
    const struct spec_export *policy; /* borrowed until run_close; uri is the one of the store */
    struct store *store;              /* borrowed */
    struct worker *workers;           /* borrowed; started */
    size_t worker_count;
    int data;          /* borrowed; the directory to export */
    int export_dir;    /* borrowed; the directory of the verdict and the logbook; its lock is held (verdict_lock) */
    const char *owner; /* metadata of the written objects: identifies this volume or directory, owner.h */
    const char *destination; /* identifies the bucket: URI and endpoint */
    enum verdict_purpose purpose;
    uint64_t writes;        /* goes into the verdict from its start */
    int64_t unpublished_ns; /* of the volume's last pod, 0: none. The verdict's start is not before it: the clock may
                               have been set back */
    bool must_lease; /* do not send a file without a lease: set for volumes, whose file systems all support leases */
    bool dry_run;
    unsigned concurrency;      /* requests at once; 0: 64 */
    uint64_t bytes_per_second; /* 0: no limit */
    int64_t since_ns;          /* INT64_MIN: all */
    void *ctx;
    bool (*is_hydrated)(void *ctx, const struct walk_file *f);
    void (*on_result)(void *ctx, const struct run_result *r);
    /* Called repeatedly while run_open walks the directory: true ends it with ERR_CANCELLED. NULL: never. */
    bool (*is_stopped)(void *ctx);
};

struct export_run;

/* Walks the directory, selects files, writes the verdict "running", and starts. */
must_check int run_open(const struct run_options *o, struct export_run **ret, struct err *err);

/* True once every file has ended, or the run was stopped. *ret gets the current counts, without failures, for
 * verdict_write_progress. */
bool run_wait(struct export_run *r, uint64_t timeout_ns, struct verdict *ret_counts);

/* Any thread, but not a signal handler: starts no new file and cancels transfers. Sent files stay sent, and uploaded
 * parts stay for the next run. */
void run_stop(struct export_run *r);

/* Whether a file was sent or an upload began, in this run or an earlier one: else no later run needs the records. Call
 * it after run_wait returned true. */
bool run_has_records(const struct export_run *r);

/* Call it after run_wait returned true. Writes the verdict: DONE or FAILED; a stopped run leaves RUNNING and
 * returns ERR_CANCELLED. *ret is set unless the verdict cannot be written. Always frees the run. */
must_check int run_close(struct export_run *own_r, struct verdict *ret, struct err *err);

/* Requests that write a file of this size without failures, besides one HEAD: for estimates. Pure. */
unsigned run_write_requests(const struct store *s, uint64_t size_bytes);
