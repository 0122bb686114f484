/* SPDX-License-Identifier: Apache-2.0 */
/* fault.h - Records which objects failed and why the run failed.
 * home: any thread, under `lock`. */
#pragma once

#include "hydrate/status.h"
#include <pthread.h>

struct hydrate;

enum { FAULTS_MAX = 1000 };

/* Set where the error is made: the engine acts on it. */
enum hydrate_fault_kind {
    FAULT_OTHER,
    FAULT_GONE,         /* the object was deleted since it was listed */
    FAULT_LISTING,      /* a new listing may name this object otherwise: another version, key or size */
    FAULT_EMPTY,        /* a source selects no object */
    FAULT_TOO_LARGE,    /* the source does not fit on the disk */
    FAULT_LISTED_TWICE, /* the listing names one path twice */
    FAULT_INCOMPLETE,   /* the run came to its end, but not all objects arrived */
};

struct hydrate_faults {
    pthread_mutex_t lock;
    bool is_cancelled; /* by hydrate_cancel() */
    bool has_fatal;
    bool is_stale; /* a FAULT_LISTING or FAULT_GONE: the next run lists again */
    enum hydrate_fault_kind fatal_kind;
    struct err fatal;           /* the first one */
    struct hydrate_fault *ring; /* owned: FAULTS_MAX, unread */
    size_t first, count;
    uint64_t unnamed;           /* did not fit into the ring */
    struct hydrate_fault *kept; /* owned: HYDRATE_ERRORS_KEPT, for the status */
    size_t kept_count;
    uint64_t codes; /* bits of enum err_code */
};

void faults_init(struct hydrate_faults *f);
void faults_done(struct hydrate_faults *f);

/* Counts and names one failed object. An error of the disk fails the run. */
void object_failed(struct hydrate *h, enum hydrate_fault_kind kind, struct str path, const struct err *err,
                   unsigned attempts);
/* Fails the run; only the first error counts. */
void run_failed(struct hydrate *h, enum hydrate_fault_kind kind, const struct err *err);
/* Fails the run when the store has refused every request for as long as one request is retried. Without this, each
 * object would be retried that long, one after another. `last`: the error of the last refusal. */
void outage_check(struct hydrate *h, uint64_t refused_for_ns, uint64_t retry_limit_ns, const struct err *last);
struct store_reply;
enum hydrate_fault_kind fault_kind_of_reply(const struct store_reply *r);
/* Whether onMissing: skip lets the run pass over it. */
bool fault_is_allowed(const struct hydrate *h, enum hydrate_fault_kind kind);
/* Whether the disk or this process is at fault, so that every other object would fail too. */
bool fault_is_fatal(const struct err *err);
