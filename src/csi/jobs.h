/* SPDX-License-Identifier: Apache-2.0 */
/* jobs.h - the children that work on volumes: `cistern hydrate` and `cistern export`, one of each a volume.
 * home: any thread, under its own lock. A thread "jobs" starts and reaps them; nobody else does.
 *
 * A child has a session of its own and outlives us. Whether one lives, a lock in the volume's folder says, not our
 * memory: after a restart what still runs is found by it, waited for and never started twice. What a child achieved is
 * on disk too (hydrate/status.h, export/verdict.h); its exit code is only for the log. One that failed is started
 * again, later each time. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include "volume/work.h"

struct jobs;

enum job_state {
    JOB_QUEUED,  /* as many run as may */
    JOB_RUNNING, /* our child, or one that an earlier driver started */
    JOB_FAILED,  /* ended without success; started again in `retry_ns` */
    JOB_DONE,
};

struct job_view {
    enum job_state state;
    uint64_t retry_ns; /* from now; of FAILED */
    unsigned failures; /* in a row */
};

enum { JOBS_RUNNING_MAX = 16, JOBS_MAX = 16384 };

/* `program` is `cistern`, copied. */
must_check int jobs_start(const char *program, struct jobs **ret, struct err *err);
/* Ends the thread and leaves the children at their work. NULL is fine. */
void jobs_stop(struct jobs *j);

/* This work is wanted for the volume `id` in the folder `path`, whose disk is attached: starts it unless it runs, waits
 * for its next try, or is done. An export for release displaces a failed one for unpublish, and waits for a running
 * one. `fresh`: what is done is not enough, and what runs began too early: once more, after it. */
must_check int jobs_want(struct jobs *j, const char *id, const char *path, enum job_kind kind, bool fresh,
                         struct job_view *ret, struct err *err);

/* The volume's jobs are not wanted any more: SIGTERM, after 2 s SIGKILL; returns when none lives, also none that an
 * earlier driver started. ERR_TIMEOUT if one outlives 10 s. */
must_check int jobs_end(struct jobs *j, const char *id, const char *path, struct err *err);

unsigned jobs_running(struct jobs *j); /* for tests and metrics */
