/* SPDX-License-Identifier: Apache-2.0 */
/* work.h - what processes of their own do to a volume, and by which command: children of the standalone driver, Jobs in
 * a cluster. Pure. home: any. JOB_HOLD is a cluster's alone, and does nothing: its pod is there so that the volume's
 * node is not drained. */
#pragma once

enum job_kind { JOB_HYDRATE, JOB_EXPORT_UNPUBLISH, JOB_EXPORT_RELEASE, JOB_HOLD };

enum { WORK_WORDS_MAX = 8 };

const char *work_verb(enum job_kind kind); /* "hydrate", "export", "hold" */

/* `cistern hydrate --volume PATH`, and so on: the words, and NULL behind them. `program` and `path` are borrowed. */
void work_command(enum job_kind kind, const char *program, const char *path, const char *ret[WORK_WORDS_MAX]);
