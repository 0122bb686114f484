/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h - bucket to disk: list, fetch, check, write, record; to be stopped and continued at any moment.
 * home: made, waited for and freed by one thread (main); the functions that others may call say so. */
#pragma once

#include "hydrate/shard.h"
#include "hydrate/status.h"
#include "hydrate/target.h"
#include "store/store.h"
#include "util/glob.h"

enum hydrate_verify { HYDRATE_VERIFY_AUTO, HYDRATE_VERIFY_SIZE, HYDRATE_VERIFY_NONE };
/* AUTO: where the file system has it. ON: an error where it has not (CIS2034). */
enum hydrate_direct { HYDRATE_DIRECT_AUTO, HYDRATE_DIRECT_ON, HYDRATE_DIRECT_OFF };

/* One prefix. Borrowed, all of it, until hydrate_free(). */
struct hydrate_source {
    struct store *store;
    const char *uri;             /* for sentences and for the catalog's head */
    const char *sub_path;        /* where it lands below the target; NULL or "": its root */
    bool keeps_prefix;           /* an object's path is its whole key, not what is behind the prefix */
    const struct filter *filter; /* NULL: everything */
};

enum { HYDRATE_SOURCES_MAX = 64, HYDRATE_PRIORITIES_MAX = 32 };

struct hydrate_options {
    const struct hydrate_source *sources;
    size_t source_count;
    const char *const *priorities; /* globs: these land first, in this order */
    size_t priority_count;
    unsigned concurrency_max; /* requests at once at the most; 0: 512, or what a control group's memory allows. How many
                                there are is found by itself */
    uint64_t bytes_per_second; /* 0: no cap */
    uint64_t memory_bytes;     /* of bytes in flight; 0: 128 MiB, or a quarter of a control group's limit */
    unsigned workers;          /* threads; 0: found by itself */
    enum hydrate_verify verify;
    enum hydrate_direct direct;
    uint64_t errors_max; /* objects that may fail before the run gives up; 0: 1,000 */
    struct shard shard; /* of the objects that were wanted, this run's part; nothing is fetched before all are listed */
    bool skip_missing;  /* an object that is gone when its turn comes is left out, instead of failing */
    bool size_check;    /* hold the running total against the space */
    bool fresh;         /* forget an earlier run */
    bool overwrite;     /* in a folder that people see: also files that no hydration wrote */
    uint64_t stall_ns;  /* a request that gets next to nothing for so long is asked again; 0: 30 s */
    uint64_t barrier_ns; /* how much of its time a power loss may cost the run; 0: 15 s */
    bool durable;        /* return only when a power loss can take nothing; always so for volumes */
    bool no_uring;
};

struct hydrate;

/* Takes the target in any case. Starts at once. ERR_EXISTS: the target holds an unfinished run of another source. */
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

/* Faults in order, each given once; false: none now. Past 1,000 unread ones they are counted only: so many so far. */
bool hydrate_next_fault(struct hydrate *h, struct hydrate_fault *ret);
uint64_t hydrate_faults_unnamed(struct hydrate *h);

/* After the end: the code that all failed objects share, 0 if they differ or none failed. */
enum err_code hydrate_common_fault(struct hydrate *h);
