/* SPDX-License-Identifier: Apache-2.0 */
/* staging_mount.h - Opens the staging mount of a volume, verifies that it is this volume's and alive, and mounts it
 * again if it is lost. home: the holder of the volume lock. Blocks for a few seconds at most on a mount that does not
 * answer. */
#pragma once

#include "pool/record.h"
#include "private.h"

/* Opens the mount at have->staged as O_PATH: the caller binds the very mount that was verified. If the mount is
 * missing, dead (ENOTCONN) or not this volume's, the volume is mounted again first. Pods keep the dead mount. ERR_AGAIN
 * (CIS_MOUNT_UNRESPONSIVE): the mount does not answer in time, or its keeper has just died. ERR_BUSY
 * (CIS_STAGING_NOT_RESTORED): the volume could not be mounted again. */
must_check int staging_mount_open(struct driver *d, struct pool *p, const struct volume *v, const struct record *have,
                                  int *ret_fd, struct err *err);

/* Is the mount process of the mount at `path` dead? False also for a mount that does not answer in time. */
must_check int staging_mount_is_dead(const char *path, bool *ret, struct err *err);
