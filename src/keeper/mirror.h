/* SPDX-License-Identifier: Apache-2.0 */
/* mirror.h - Holds duplicates of the keeper's descriptors, so that mounts survive the keeper's death.
 *
 * home: any thread, under .lock. A thread of its own stays connected to the keeper, and reconnects with
 * backoff up to 1 s. A restarted keeper gets every descriptor back, and its mount processes continue. A restarted
 * cisternd gets every descriptor from the keeper when its mirror connects. */
#pragma once

#include "counts.h"
#include "util/err.h"

struct mirror;
must_check int mirror_start(const char *socket, struct mirror **ret, struct err *err);
void mirror_stop(struct mirror *m); /* NULL is fine; joins the thread and closes the duplicates; mounts stay */

uint32_t mirror_volumes(struct mirror *m); /* how many it holds */
bool mirror_is_connected(struct mirror *m);
bool mirror_holds(struct mirror *m, const char *volume_id); /* and is connected */

/* Sums the work of the mount processes since the mirror got each volume. The sum never falls. Read from the
 * memfds, so it never waits for a mount or a keeper. */
void mirror_counts(struct mirror *m, struct counts *ret);
