/* SPDX-License-Identifier: Apache-2.0 */
/* keeping.h - the keeper, asked for mounts; started if nobody answers. home: any thread; blocks. */
#pragma once

#include "driver.h"
#include "record.h"

must_check int keeping_mount(struct driver *d, const struct volume *v, const char *data, const struct record *wish,
                             struct err *err);

/* A keeper that is gone has left a dead mount at `path` at the most: that is the caller's to take away. */
must_check int keeping_unmount(struct driver *d, const char *id, const char *path, struct err *err);
