/* SPDX-License-Identifier: Apache-2.0 */
/* keeping.h - the keeper as a machine without Kubernetes has it: started when the first mount is asked for, started
 * again when it dies, ended when nothing is mounted and we go. On a node of a cluster it is a pod of its own, and only
 * asked. home: any thread. */
#pragma once

#include "fuse/keeper.h"
#include "volume/record.h"
#include "volume/spec.h"

struct keeping;

/* `programs` is the folder of cistern-keeper; NULL: somebody else starts it. `mirror` outlives it: a keeper that dies
 * is started again within half a second by the thread "keeping", and gets the mirror's descriptors back. */
must_check int keeping_start(const char *socket, const char *programs, struct mirror *mirror, struct keeping **ret,
                             struct err *err);
void keeping_stop(struct keeping *own_k); /* NULL is fine */

must_check int keeping_mount(struct keeping *k, const struct spec *s, const char *data, const struct record *wish,
                             struct err *err);

/* Without a keeper there is at most a dead mount at `path`: that is the caller's to take away. */
must_check int keeping_unmount(struct keeping *k, const char *id, const char *path, struct err *err);
