/* SPDX-License-Identifier: Apache-2.0 */
/* dir_watch.h - Reports that a volume's hydration or export made progress: both replace a status file in the volume's
 * directory, and inotify reports that.
 * home: any thread, under .lock; `moved` runs on the loop. Best effort: above a limit, here or of the kernel, a volume
 * is not watched, and the agent reads it by its timer alone. */
#pragma once

#include "io/loop.h"

struct dir_watch;

/* `moved` must not wait. The loop, or any thread before it starts. */
must_check int dir_watch_new(struct loop *l, void (*moved)(void *ctx, const char *name), void *ctx,
                             struct dir_watch **ret, struct err *err);
void dir_watch_free(struct dir_watch *own_n); /* after the loop's end; NULL is fine */

/* Watches the volume `name` with the directory `path`. Adding it again is fine, and adds new subdirectories. */
void dir_watch_add(struct dir_watch *n, const char *name, const char *path);
void dir_watch_remove(struct dir_watch *n, const char *name); /* not watched is fine */
