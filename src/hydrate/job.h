/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - one small object, or one part of a large one: the life of a request.
 * home: its lane's loop. It holds a slice from its first byte to its last write; without one it waits, and that wait is
 * all our back-pressure. */
#pragma once

#include "catalog/index.h"
#include "io/loop.h"
#include "io/uring.h"
#include "util/budget.h"
#include <stdatomic.h>

struct lane;
struct large;

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
    bool is_other;   /* the answer is of another version of the object than those before */
    uint64_t started_ns;
    uint64_t sent_ns;     /* of this attempt */
    struct job *next_due; /* of the lane's, whose time to wait is over */
    struct timer backoff;
    struct budget_waiter waiter;
    struct mail granted;
    _Atomic bool is_granted; /* the mail is on its way */
    /* the answer, kept while writes drain */
    int code;
    bool may_retry;
    bool refused;
    uint64_t retry_ns;
    struct err err;
};

/* job.c */
void job_begin(struct lane *l, uint64_t id, const struct index_entry *e, struct large *large, uint32_t part);
void job_retry(struct job *j); /* it is due, and has its turn */
void job_stop(struct job *j);
void job_pause(struct job *j, bool paused); /* counts; who calls also tells the GET */
void job_advance(struct job *j);            /* a write ended, or the GET did */
void job_free_slices(struct job *j);
void job_end(struct job *j);
void job_object_failed(struct job *j, const struct err *err);
void job_mismatch(struct job *j, const struct digest *want, const struct digest *got);

/* small.c: an object in one slice. */
int small_data(struct job *j, const char *bytes, size_t len);
void small_whole(struct job *j, const struct digest *reply);
/* It could not be had. What is at its path an earlier run brought, or the half of it, whose record a kill took: it may
 * be called whole by nobody, and would stay for good in a DIR that gets its name, or with an object that may miss. */
void small_failed(struct lane *l, const struct index_entry *e);
must_check int small_write(struct lane *l, uint64_t id, const struct index_entry *e, const void *bytes,
                           struct err *err);
must_check int marker_make(struct lane *l, const struct index_entry *e, struct err *err);

/* part.c: a part, through slices that come and go. */
int part_data(struct job *j, const char *bytes, size_t len);
void part_whole(struct job *j);
void part_flush(struct job *j); /* what is left in the filling slice goes out */
