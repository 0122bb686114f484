/* SPDX-License-Identifier: Apache-2.0 */
/* mounts.h - what the mount processes of this node do, as metrics.
 * home: the thread that looks. */
#pragma once

#include "fuse/keeper.h"

struct mounts;

/* The keeper's socket and the mirror outlive it; the node's name is copied. */
struct mounts *mounts_new(const char *node, const char *keeper_socket, struct mirror *mirror);
void mounts_free(struct mounts *own_m); /* NULL is fine */

/* Counts what was done since the last look. A keeper that hangs is waited for (10 s), a mount never. */
void mounts_look(struct mounts *m);
