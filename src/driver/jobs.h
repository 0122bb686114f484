/* SPDX-License-Identifier: Apache-2.0 */
/* jobs.h - Runs `cistern hydrate` and `cistern export` as child processes, at most one of each for a volume. home: any
 * thread, under its own lock; only the thread "jobs" starts and reaps children. A child has a session of its own and
 * survives the driver. A lock in the volume's directory shows whether it lives: after a restart it is found, waited for
 * and never started twice. Its result is on disk too (hydrate/status.h, export/verdict.h). A failed job is started
 * again with growing delays. */
#pragma once

#include "spec/id.h"
#include "spec/job_kind.h"
#include "util/err.h"
#include "util/str.h"

struct jobs;

enum driver_job_state {
    JOB_QUEUED,  /* the maximum of jobs runs */
    JOB_RUNNING, /* our child, or one that an earlier driver started */
    JOB_FAILED,  /* ended without success; started again in `retry_ns` */
    JOB_DONE,
};

struct driver_job_view {
    enum driver_job_state state;
    uint64_t retry_ns; /* from now; of FAILED */
    unsigned failures; /* in a row */
    struct err start;  /* of FAILED: why its process could not be started; code 0: it ran */
};

enum { JOBS_RUNNING_MAX = 16, JOBS_MAX = 16384 };

/* `program` is `cistern`, copied. */
must_check int jobs_start(const char *program, struct jobs **ret, struct err *err);
/* Ends the thread; the children continue. NULL is fine. */
void jobs_stop(struct jobs *j);

/* Requests work on the volume `id` in the directory `path`, whose disk is attached: starts it unless it runs, waits for
 * a retry or is done. An export for release replaces a failed one for unpublish, and waits for a running one. `fresh`:
 * run it once more even if it is done or runs. */
must_check int jobs_request(struct jobs *j, const struct volume_id *id, const char *path, enum job_kind kind,
                            bool fresh, struct driver_job_view *ret, struct err *err);

/* Withdraws the volume's jobs: SIGTERM, after 2 s SIGKILL. Returns when none of them runs, those of an earlier
 * driver included. ERR_TIMEOUT if one still runs after 10 s. */
must_check int jobs_end(struct jobs *j, const struct volume_id *id, const char *path, struct err *err);

unsigned jobs_running(struct jobs *j); /* for tests and metrics */
