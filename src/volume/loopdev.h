/* SPDX-License-Identifier: Apache-2.0 */
/* loopdev.h - a file as a block device. home: any thread.
 * Loop devices belong to the machine, not to a container or a process. Ours carry the autoclear flag: whoever dies, the
 * device is free when its last user (we while we hold the descriptor, then the mount) is gone. */
#pragma once

#include "util/err.h"

struct loopdev {
    int fd;        /* owned */
    char path[32]; /* /dev/loop7 */
    unsigned number;
};
void loopdev_done(struct loopdev *d); /* may run twice */

/* The device that has this very file (by device and inode) behind it. *ret_found false: none has. */
must_check int loopdev_find(int file, struct loopdev *ret, bool *ret_found, struct err *err);

/* A new one over `file`, direct I/O where the file can, blocks of `block_bytes`. It never discards: a hole in the file
 * would give the space to whoever asks next. `path` names the file for people (losetup -l). */
must_check int loopdev_attach(int file, const char *path, unsigned block_bytes, struct loopdev *ret, struct err *err);

/* The file grew: so does the device, also while it is mounted. */
must_check int loopdev_refresh(const struct loopdev *d, struct err *err);
