/* SPDX-License-Identifier: Apache-2.0 */
/* child.h - one child process: how it is started, known, found again and ended. home: the thread "jobs", but for
 * child_spawn, which any thread may call. */
#pragma once

#include "jobs.h"
#include <sys/types.h>

/* argv[0] is the program's path. In a session of its own, without our descriptors, signals as new; its output goes to
 * the file `log`, made anew, NULL for /dev/null. */
must_check int child_spawn(char *const argv[], const char *log, pid_t *ret, struct err *err);

/* `cistern hydrate --volume PATH`, and so on. */
must_check int child_start(const char *program, enum job_kind kind, const char *path, pid_t *ret, struct err *err);

/* Does somebody, whoever started it, do this work at this moment? Asks the lock in the volume's folder. */
bool child_lives(enum job_kind kind, const char *path);

/* Is the work done, as the files in the volume's folder tell? */
bool child_succeeded(enum job_kind kind, const char *path);

/* Sends a signal to every process that is `cistern hydrate|export --volume PATH`. */
void child_signal_all(enum job_kind kind, const char *path, int signal);

/* To every process whose first argument is `first` and which has the argument `argument` too. */
void child_signal_like(const char *first, const char *argument, int signal);
