/* SPDX-License-Identifier: Apache-2.0 */
/* volume_lock.h - Lets one call at a time work on a volume. home: any thread, under its own lock.
 * A second call gets ERR_PENDING instead of waiting: its caller would time out and repeat the call anyway.
 * A lock excludes other calls of this process; volume_lock_file() also excludes another driver process. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <pthread.h>

/* VOLUME_LOCKS_MAX: more than there are threads. VOLUME_LOCK_KEY_MAX: a CSI name has at most 128 bytes. */
enum { VOLUME_LOCKS_MAX = 128, VOLUME_LOCK_KEY_MAX = 160 };

struct volume_locks {
    pthread_mutex_t lock; /* guards keys */
    char keys[VOLUME_LOCKS_MAX][VOLUME_LOCK_KEY_MAX];
};

struct volume_lock {
    struct volume_locks *locks; /* borrowed; NULL: not locked */
    size_t slot;
    int file; /* owned; the lock file in the volume's directory; -1: none */
};
#define NO_VOLUME_LOCK ((struct volume_lock){.file = -1})

void volume_locks_init(struct volume_locks *l);
void volume_locks_done(struct volume_locks *l);

/* `key` is a volume's id, or '/' and its name while it is being made. */
must_check int volume_lock_take(struct volume_locks *l, const char *key, struct volume_lock *ret, struct err *err);
/* Locks a file in the volume's directory `dir`, which is at `path`, against other processes. ERR_PENDING: it is locked.
 * ERR_NOT_FOUND: the directory is not at its path any more. */
must_check int volume_lock_file(struct volume_lock *l, int dir, const char *path, struct err *err);
void volume_lock_release(struct volume_lock *l); /* may run twice */

#define auto_volume_lock auto_with(volume_lock_release) struct volume_lock
