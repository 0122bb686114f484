/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - an export from its first look at the folder to its verdict.
 * home: run_open, run_wait and run_close are the caller's, on one thread that is no loop: they block. run_stop is
 * anybody's. Callbacks come on run_open's thread and on the first worker's loop, one at a time.
 * SIGIO must be blocked in every thread of the process before: leases speak by it.
 *
 * Bounds: bytes in flight by `memory_bytes`, requests by `concurrency`, files to send by PICK_FILES_MAX. */
#pragma once

#include "export/verdict.h"
#include "store/store.h"
#include "volume/spec.h"

struct walk_file;

enum run_event {
    RUN_SENT,    /* confirmed by the bucket */
    RUN_THERE,   /* the bucket has these very bytes under this name already */
    RUN_SKIPPED, /* not a thing that a bucket holds; `note` says what it is */
    RUN_WAITING, /* somebody can write it: it is tried again; told once */
    RUN_FAILED,  /* `err` says why */
    RUN_PLANNED, /* with dry_run: it would be sent */
};

struct run_result {
    enum run_event event;
    struct str path; /* borrowed */
    struct str key;  /* of the object; empty if there is none */
    uint64_t size_bytes;
    const char *note;      /* may be NULL */
    const struct err *err; /* RUN_FAILED */
};

struct run_options {
    const struct spec_export *policy; /* borrowed until run_close; uri is what the store was opened with */
    struct store *store;              /* borrowed */
    struct worker *workers;           /* borrowed; started */
    size_t worker_count;
    int data;                /* borrowed; the folder to export */
    int export_dir;          /* borrowed; where the verdict and the logbook live; its lock is held (verdict_lock) */
    const char *owner;       /* of the objects that are written: names this volume or directory, owner.h */
    const char *destination; /* all that tells this bucket from others: URI, endpoint */
    enum verdict_purpose purpose;
    uint64_t writes; /* goes into the verdict from its start */
    bool must_lease; /* a file without a lease is not sent: so for volumes, whose file systems all give them */
    bool dry_run;
    unsigned concurrency;      /* requests at once; 0: 64 */
    uint64_t memory_bytes;     /* 0: 192 MiB */
    uint64_t bytes_per_second; /* 0: no limit */
    int64_t since_ns;          /* INT64_MIN: all */
    void *ctx;
    bool (*is_hydrated)(void *ctx, const struct walk_file *f);
    void (*on_result)(void *ctx, const struct run_result *r);
    /* Asked again and again while run_open looks at the folder: true ends it with ERR_CANCELLED. NULL: never. */
    bool (*is_stopped)(void *ctx);
};

struct run;

/* Walks, picks, writes the verdict "running", starts. */
must_check int run_open(const struct run_options *o, struct run **ret, struct err *err);

/* True once everything has come to its end, or everything was stopped. Copies the counts meanwhile: *ret is good for
 * verdict_write_progress, and its failures are left out. */
bool run_wait(struct run *r, uint64_t timeout_ns, struct verdict *ret_counts);

/* Any thread, not a signal handler: no new file is begun, what travels is cut off. What was sent stays sent, and parts
 * that arrived stay for the next run. */
void run_stop(struct run *r);

/* After run_wait said true. Writes the verdict: DONE or FAILED; a stopped run leaves RUNNING, and is ERR_CANCELLED.
 * *ret is set in any case but a failure to write it. Frees the run always. */
must_check int run_close(struct run *own_r, struct verdict *ret, struct err *err);
