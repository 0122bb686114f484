/* SPDX-License-Identifier: Apache-2.0 */
/* keeper.h - Runs the keeper's loop: for cistern-keeper, and for `cistern mount` with one volume.
 * home: the main thread, which gets its signals blocked. */
#pragma once

#include "client.h"

struct keeper_options {
    const char *socket;  /* where to listen; NULL: no clients, only `alone` is served */
    const char *program; /* the mount process: PROGRAM ID, with the control socket as fd 3; NULL: `cistern-mount` */
    const struct keeper_mount_request *alone; /* a mount of our own: the keeper ends with it; NULL for none */
    int ready_fd;                             /* borrowed: gets one byte when `alone` is mounted or we listen; or -1 */
    bool take_over;                           /* ask the keeper at `socket` to hand everything over and end */
    /* Logs an event, "mount process died" and so on; why may be NULL. */
    void (*event)(const char *what, const char *volume_id, const struct err *why);
};

/* Runs until SIGTERM or SIGINT (`alone`: unmounts; else leaves the mounts to the mirrors), until a newer keeper took
 * over, or `alone` is unmounted. */
must_check int keeper_run(const struct keeper_options *o, struct err *err);
