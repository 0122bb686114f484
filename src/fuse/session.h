/* SPDX-License-Identifier: Apache-2.0 */
/* session.h - the two sides of a mount, for the programs: the process that serves one volume, and the keeper.
 * home: the main thread; both block signals, and end only with their work. */
#pragma once

#include "keeper.h"

/* Exit status of a mount process whose session cannot be taken up again; 0 is one that was unmounted. */
enum { SESSION_LOST = 3 };

/* Serves the volume that comes over the control socket (own_control_fd) until it is unmounted: then 0. Any other end is
 * a reason for the keeper to start the next process, but for *ret_lost: then the session cannot be taken up again. */
must_check int session_serve(int own_control_fd, bool *ret_lost, struct err *err);

struct keep_options {
    const char *socket;  /* where to listen; NULL: nobody is listened to, only `alone` is served */
    const char *program; /* what mount processes run: PROGRAM ID, with the control socket as 3; NULL: `cistern-mount` */
    const struct keeper_mount *alone; /* a mount of our own: we end when it does; NULL for none */
    int ready_fd;                     /* borrowed: gets one byte when `alone` is mounted or we listen; -1 for none */
    bool take_over;                   /* ask a keeper that listens at `socket` to hand everything over and end */
    /* What happened, for the log: "mount process died" and so on; why may be NULL. */
    void (*event)(const char *what, const char *volume_id, const struct err *why);
};

/* Runs until SIGTERM or SIGINT (`alone`: unmounts; a keeper: leaves the mounts to its mirrors and ends), until a newer
 * keeper took over, or `alone` is unmounted. */
must_check int keep_run(const struct keep_options *o, struct err *err);
