/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h - runs a hydration: lists, fetches, verifies, writes and records objects. It can be stopped and continued at
 * any moment. home: made, waited for and freed by one thread (main); functions say so where others may call them.
 * Code: engine.c, progress.c (the status) and fault.c (the errors). */
#pragma once

#include "hydrate/shard.h"
#include "hydrate/status.h"
#include "hydrate/target.h"
#include "store/store.h"
#include "util/glob.h"

enum hydrate_verify { HYDRATE_VERIFY_AUTO, HYDRATE_VERIFY_SIZE, HYDRATE_VERIFY_NONE };
/* AUTO: where the file system has it. ON: an error where it has not (CIS_DIRECT_IO_UNSUPPORTED). */
enum hydrate_direct { HYDRATE_DIRECT_AUTO, HYDRATE_DIRECT_ON, HYDRATE_DIRECT_OFF };

/* One prefix. Everything is borrowed until hydrate_free(). */
struct hydrate_source {
    struct store *store;
    const char *uri;             /* for sentences and for the catalog's head */
    const char *sub_path;        /* its directory below the target; NULL or "": the root */
    bool keeps_prefix;           /* an object's path is its whole key, not only the part after the prefix */
    const struct filter *filter; /* NULL: everything */
};

enum { HYDRATE_SOURCES_MAX = 64, HYDRATE_PRIORITIES_MAX = 32 };

struct hydrate_options {
    const struct hydrate_source *sources;
    size_t source_count;
    const char *const *priorities; /* globs: these land first, in this order */
    size_t priority_count;
    unsigned concurrency_max;  /* limit of concurrent requests; 0: 512, or less if the control group's memory is small.
                                  The engine finds the number below it */
    uint64_t bytes_per_second; /* 0: no cap */
    uint64_t memory_bytes;     /* of bytes in flight; 0: 128 MiB, or a quarter of a control group's limit */
    unsigned workers;          /* threads; 0: one more than processors */
    enum hydrate_verify verify;
    enum hydrate_direct direct;
    uint64_t errors_max; /* objects that may fail before the run gives up; 0: 1,000 */
    struct shard shard;  /* this run's part of the selected objects; nothing is fetched before all are listed */
    bool allow_empty;    /* a source may select no object; else the run fails */
    bool skip_missing;   /* skip an object that was deleted since it was listed, instead of failing */
    bool size_check;     /* hold the running total against the space */
    bool fresh;          /* discard the state of an earlier run */
    bool delete_gone;    /* in place: remove files that a hydration wrote and whose object is gone */
    bool overwrite;      /* in place: also overwrite files that no hydration wrote */
    uint64_t stall_ns;   /* a request is retried if almost no bytes arrive for this time; 0: 30 s */
    uint64_t barrier_ns; /* work that a power loss may cost, in time; 0: 15 s */
    bool durable;        /* flush everything to disk before the run ends; always so for volumes */
    bool no_uring;
};

struct hydrate;

/* Starts a run, and takes the target even on failure. ERR_EXISTS: the target holds an unfinished run of another
 * source. */
must_check int hydrate_start(const struct hydrate_options *o, struct target *own_target, struct hydrate **ret,
                             struct err *err);
void hydrate_free(struct hydrate *h); /* stops it first; NULL is fine */
DEFINE_AUTO(hydrate, struct hydrate, hydrate_free)
#define auto_hydrate auto_with(auto_clean_hydrate) struct hydrate *

/* Any thread. The run ends as HYDRATE_STOPPED; the same command continues it. */
void hydrate_cancel(struct hydrate *h);

/* Readable when the run has ended. */
int hydrate_fd(const struct hydrate *h);
bool hydrate_has_ended(const struct hydrate *h);

/* Any thread. A snapshot; `phase` DONE, FAILED or STOPPED once it has ended. */
void hydrate_status(struct hydrate *h, struct hydrate_status *ret);

/* Any thread. The path of the object that has been running longest. buf of `size`; empty if none. */
void hydrate_slowest(struct hydrate *h, char *buf, size_t size);

/* Gives each fault once, in order; false: none now. Faults beyond 1,000 unread ones are only counted. */
bool hydrate_next_fault(struct hydrate *h, struct hydrate_fault *ret);
uint64_t hydrate_faults_unnamed(struct hydrate *h);

/* After the end: the run failed only because some objects failed or were kept. */
bool hydrate_is_incomplete(struct hydrate *h);

/* After the end: the run failed because a source selects no object. */
bool hydrate_found_nothing(struct hydrate *h);

/* After the end: the code that all failed objects share; 0 if the codes differ or no object failed. */
enum err_code hydrate_common_fault(struct hydrate *h);

/* Requests that an object of this size takes, of `s` without failures: for estimates. Pure. */
unsigned hydrate_requests(const struct store *s, uint64_t size_bytes);
