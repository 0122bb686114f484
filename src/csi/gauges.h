/* SPDX-License-Identifier: Apache-2.0 */
/* gauges.h - how full the pools are, how many volumes are in which phase, and what travels and what mounts do, as
 * metrics. home: any thread starts and stops it. It reads the disk on a thread of its own, so that a scrape never waits
 * for one that hangs: values are as old as its interval, more where a round takes long (it rests 19 times as long). */
#pragma once

#include "mounts.h"
#include "volume/space.h"

struct gauges;

/* `spaces` outlive it; the node's name is copied. The first values are there when it returns. */
must_check int gauges_start(const char *node, struct space *const *spaces, size_t count, struct mounts *own_mounts,
                            uint64_t interval_ns, struct gauges **ret, struct err *err);
void gauges_stop(struct gauges *own_g); /* after the round in hand; NULL is fine */
