/* SPDX-License-Identifier: Apache-2.0 */
/* child.h - Starts, finds and ends child processes. home: the thread "jobs"; child_spawn: any thread. */
#pragma once

#include "jobs.h"
#include <signal.h>
#include <sys/types.h>

struct child {
    pid_t pid; /* for logs */
    int fd;    /* owned: its pidfd; -1: none */
};
#define NO_CHILD ((struct child){.fd = -1})

/* argv[0] is the program's path. The child has a session of its own, default signals and none of our descriptors; its
 * output goes to the new file `log` (NULL: /dev/null). */
must_check int child_spawn(char *const argv[], const char *log, struct child *ret, struct err *err);

/* Starts the command of the job: `cistern hydrate --volume PATH` or `cistern export --volume PATH`. */
must_check int child_start(const char *program, enum job_kind kind, const char *path, struct child *ret,
                           struct err *err);

/* True if the child has ended: *ret is set as by waitid(), and *c is NO_CHILD. Does not wait. */
bool child_reap(struct child *c, siginfo_t *ret);
void child_close(struct child *c); /* may run twice */

/* Does any process run this job now? Tests the lock in the volume's directory. */
bool child_lives(enum job_kind kind, const char *path);

/* Is the job done, by the files in the volume's directory? */
bool child_succeeded(enum job_kind kind, const char *path);

/* Sends a signal to every process that is `cistern hydrate|export --volume PATH`. */
void child_signal_all(enum job_kind kind, const char *path, int signal);

/* Sends it to every process whose first argument is `first` and which also has the argument `argument`. */
void child_signal_like(const char *first, const char *argument, int signal);
