/* SPDX-License-Identifier: Apache-2.0 */
/* staged.h - the staging mount of a volume: opened, verified to be this volume's and alive, mounted again if it is
 * lost. home: the holder of the volume's claim. It blocks for a few seconds at most on a mount that does not answer. */
#pragma once

#include "driver.h"
#include "volume/record.h"

/* Opens the mount at have->staged as O_PATH: a bind of this descriptor is a bind of what was verified. If nothing is
 * mounted there, or the mount is dead (ENOTCONN) or not this volume's, the volume is mounted again first. Pods that
 * have the old mount keep it, dead as it is. ERR_AGAIN (CIS3019): the mount does not answer in time. ERR_BUSY
 * (CIS3020): the volume could not be mounted again. */
must_check int staged_open(struct driver *d, struct space *s, const struct volume *v, const struct record *have,
                           int *ret_fd, struct err *err);

/* Has the mount at `path` lost its mount process for ever? False also for a mount that does not answer in time. */
must_check int staged_is_dead(const char *path, bool *ret, struct err *err);
