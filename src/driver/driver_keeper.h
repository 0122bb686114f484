/* SPDX-License-Identifier: Apache-2.0 */
/* driver_keeper.h - Starts the keeper on a machine without Kubernetes and restarts it when it dies; mounts through it.
 * On a cluster's node the keeper is a pod of its own. home: any thread. */
#pragma once

#include "keeper/client.h"
#include "keeper/mirror.h"
#include "pool/record.h"
#include "spec/spec.h"

struct driver_keeper;

/* `programs` is the directory of cistern-keeper; NULL: the keeper is a pod of its own. `mirror` outlives it. The thread
 * "keeper" restarts a dead keeper within half a second; the mirror hands it the descriptors. */
must_check int driver_keeper_start(const char *socket, const char *programs, struct mirror *mirror,
                                   struct driver_keeper **ret, struct err *err);
/* Waits up to 15 s for a keeper if only the mirror has the descriptors. NULL is fine. */
void driver_keeper_stop(struct driver_keeper *own_k);

/* `label`: the SELinux label of the mount, or NULL. */
must_check int driver_keeper_mount(struct driver_keeper *k, const struct spec *s, const char *data,
                                   const struct record *wish, const char *label, struct err *err);

/* Waits until the mirror holds the mount's descriptors too: without them the keeper's death would end the mount.
 * Gives up after some seconds, because the mount works anyway. */
void driver_keeper_wait_for_mirror(struct driver_keeper *k, const struct volume_id *id);

/* Without a keeper at most a dead mount is left at `path`, which the caller must unmount. */
must_check int driver_keeper_unmount(struct driver_keeper *k, const struct volume_id *id, const char *path,
                                     struct err *err);
