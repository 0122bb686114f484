/* SPDX-License-Identifier: Apache-2.0 */
/* notify.h - which volumes' work has moved on: hydrations and exports tell of themselves in files that they replace in
 * the volume's folder, and the kernel tells of that.
 * home: any thread, under .lock; `moved` is called on the loop. Best effort: past a ceiling, here or of the kernel's, a
 * volume is not watched, and is looked at by the clock alone. */
#pragma once

#include "io/loop.h"

struct notify;

/* `moved` must not wait. The loop, or any thread before it starts. */
must_check int notify_new(struct loop *l, void (*moved)(void *ctx, const char *name), void *ctx, struct notify **ret,
                          struct err *err);
void notify_free(struct notify *own_n); /* behind the loop's end; NULL is fine */

/* Begins to watch the volume `name`, whose folder is `path`;
 * watched already is fine, and takes in what is new there. */
void notify_add(struct notify *n, const char *name, const char *path);
void notify_remove(struct notify *n, const char *name); /* not watched is fine */
