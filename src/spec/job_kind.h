/* SPDX-License-Identifier: Apache-2.0 */
/* job_kind.h - the commands of the processes that work on a volume: children of the standalone driver, Jobs in a
 * cluster. Pure. home: any. JOB_HOLD exists only in a cluster, and does nothing: its pod delays the drain of the
 * volume's node. */
#pragma once

enum job_kind { JOB_HYDRATE, JOB_EXPORT_UNPUBLISH, JOB_EXPORT_RELEASE, JOB_HOLD };

enum { JOB_KIND_WORDS_MAX = 8 };

const char *job_kind_verb(enum job_kind kind); /* "hydrate", "export", "hold" */

/* The arguments of `cistern hydrate --volume PATH`, and so on, followed by NULL. `program` and `path` are
 * borrowed. */
void job_kind_command(enum job_kind kind, const char *program, const char *path, const char *ret[JOB_KIND_WORDS_MAX]);
