/* SPDX-License-Identifier: Apache-2.0 */
/* loopdev.h - A file as a block device. home: any thread. Loop devices belong to the machine, not to a container or a
 * process. Those made here carry the autoclear flag: the device is free when its last user is gone, that is our
 * descriptor, then the mount. */
#pragma once

#include "util/err.h"

struct loopdev {
    int fd;        /* owned */
    char path[32]; /* /dev/loop7 */
    unsigned number;
};
void loopdev_done(struct loopdev *d); /* may run twice */

/* The device of this file (by device and inode). *ret_found false: no device has it. */
must_check int loopdev_find(int file, struct loopdev *ret, bool *ret_found, struct err *err);

/* A new device over `file`: direct I/O where the file supports it, blocks of `block_bytes`. It never discards: a hole
 * in the file would give its space to other volumes. `path` names the file for users (losetup -l). */
must_check int loopdev_attach(int file, const char *path, unsigned block_bytes, struct loopdev *ret, struct err *err);

/* Grows the device to the size of its file, also while it is mounted. */
must_check int loopdev_refresh(const struct loopdev *d, struct err *err);
