/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - Fetches one small object, or one part of a large object: buffer, GET, writes, retries.
 * home: its lane's loop. A job holds a slice of memory from its first byte to its last write. A job without one waits,
 * and that wait is the only back-pressure. */
#pragma once

#include "catalog/index.h"
#include "fault.h"
#include "io/loop.h"
#include "io/uring.h"
#include "util/budget.h"
#include "util/list.h"
#include <stdatomic.h>

struct hydrate_lane;
struct hydrate_large;
struct hydrate_job;
struct hydrate_unit;

enum hydrate_job_state {
    HYDRATE_JOB_IDLE,
    HYDRATE_JOB_SLICE, /* waits for memory */
    HYDRATE_JOB_GET,
    HYDRATE_JOB_DRAIN, /* the GET has ended, writes are running */
    HYDRATE_JOB_BACKOFF,
};

enum { HYDRATE_JOB_SLICES = 3 }; /* one filling, two being written */

struct job_slice {
    struct disk_job io;
    struct hydrate_job *job;
    void *bytes; /* owned by the budget; NULL: none */
    size_t fill;
    uint64_t offset; /* in the file */
    bool busy;
};

/* The answer to the GET, kept while writes drain. */
struct job_answer {
    int code;
    bool may_retry;
    bool refused;          /* 429 or 503 */
    bool is_other_version; /* than earlier answers for the same object */
    enum hydrate_fault_kind kind;
    uint64_t retry_ns;
    struct err err;
};

/* The attempts to get the bytes of a job. */
struct job_tries {
    unsigned count;
    bool is_answered; /* the running one; counted by the window */
    bool is_damaged;  /* the last reply's body */
    uint64_t started_ns;
    uint64_t sent_ns; /* of the running one */
};

struct hydrate_job {
    struct hydrate_lane *lane;
    struct list_node node; /* in the lane's list of running or of free jobs */
    struct list_node due;  /* in the lane's list of jobs whose backoff is over */
    bool is_due;
    enum hydrate_job_state state;
    uint64_t id;
    struct index_entry entry;
    struct hydrate_large *large; /* NULL: a small object */
    uint32_t part;
    uint64_t offset, len, received;
    uint64_t skip; /* bytes of the next chunk that were taken before the pause */
    struct job_slice slices[HYDRATE_JOB_SLICES];
    int filling;   /* index of a slice; -1: none */
    unsigned busy; /* slices being written */
    int io_error;  /* errno of a failed write */
    bool paused;
    bool mismatched; /* its checksum was wrong once */
    struct hash hash;
    struct store_job *get;
    uint64_t in_flight; /* its share of progress.in_flight */
    struct job_tries tries;
    struct timer backoff;
    struct budget_waiter waiter;
    struct mail granted;
    _Atomic bool is_granted; /* the mail is posted */
    struct job_answer answer;
};

void job_begin(struct hydrate_lane *l, const struct hydrate_unit *u);
void job_retry(struct hydrate_job *j); /* after its backoff */
void job_stop(struct hydrate_job *j);

/* For tests. */
void job_free_slices(struct hydrate_job *j);
int part_data(struct hydrate_job *j, const char *bytes, size_t len);
void part_flush(struct hydrate_job *j); /* writes the slice that is partly filled */

/* small.c: an object in one slice. */
/* Removes what an earlier run left at the path of an object that failed: nothing records whether it is whole. */
void small_discard(struct hydrate_lane *l, const struct index_entry *e);
must_check int small_write(struct hydrate_lane *l, uint64_t id, const struct index_entry *e, const void *bytes,
                           struct err *err);
must_check int directory_object_make(struct hydrate_lane *l, const struct index_entry *e, struct err *err);
