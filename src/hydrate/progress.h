/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h - Counts what the run has done, and writes the status file.
 * home: counters: any thread; fields under `lock`: any thread; the rest: the coordinator's loop. */
#pragma once

#include "hydrate/status.h"
#include <pthread.h>
#include <stdatomic.h>

struct hydrate;

struct hydrate_progress {
    _Atomic uint64_t objects_done, bytes_done, objects_failed, objects_missing, objects_kept, size_only;
    _Atomic uint64_t same, same_bytes, changed, deleted, gone; /* files and objects that a relist compared */
    _Atomic uint64_t requests, hedged;
    _Atomic uint64_t received;  /* bytes of bodies, this run */
    _Atomic uint64_t in_flight; /* bytes that running jobs have asked for */

    pthread_mutex_t lock; /* guards the fields up to the next blank line */
    enum hydrate_phase phase;
    int64_t began_ns, started_ns, finished_ns; /* wall clock */
    char manifest[HYDRATE_MANIFEST_MAX];
    struct hydrate_listing listing;
    uint64_t seen_received, seen_ns; /* `received`, and when a status last found more (monotonic; 0: never) */
    int64_t stuck_ns;                /* wall clock: since when no request has succeeded; 0: requests succeed */

    bool was_complete;         /* frozen: an earlier run has filled this volume, and pods may have written to it */
    _Atomic uint64_t rate_now; /* bytes a second */
    uint64_t rate_bytes, rate_ns;
    struct hydrate_status *scratch; /* owned */
};

void progress_init(struct hydrate_progress *p);
void progress_done(struct hydrate_progress *p);
/* The only function that changes the phase. Any thread. */
void phase_become(struct hydrate *h, enum hydrate_phase phase);
/* Sets the time of a volume's status before the state of an earlier run is read, which may take long: readers measure
 * the silence of this run, not the time since the earlier one. */
void progress_begin(const struct hydrate *h);
/* Takes over the values of an earlier run's status file that are still valid. */
void progress_recover(struct hydrate *h);
/* Whether bytes of a body came within the last two seconds, as far as statuses have seen. Any thread. */
bool progress_is_receiving(struct hydrate_progress *p, uint64_t now_ns);
void progress_write(struct hydrate *h);
void progress_measure_rate(struct hydrate *h);
