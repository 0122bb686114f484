/* SPDX-License-Identifier: Apache-2.0 */
/* job_limit.h - limits how many volumes have a Job of one kind at once: in all, on one node and for one namespace.
 * Pure: the owner looks at waiting volumes again, and guards the limit by its lock.
 *
 * A namespace gets at most half of the Jobs, in all and on each node. So Jobs that never end cost no other namespace
 * its own. The next Job is of the namespace with the fewest running Jobs. Namespaces with equally many take turns, and
 * the volumes of one get their Jobs in the order in which they came. */
#pragma once

#include "util/list.h"

struct job_limit {
    unsigned max, max_per_node; /* 0: no limit. Set once */
    struct list jobs;           /* owned; in the order in which they may start */
};

struct job_request {
    const char *volume, *node, *ns; /* ns: of the claim; "": none */
};

/* May this volume have its Job now? If not, it waits until job_limit_leave(). `is_running`: its Job runs already,
 * whatever the limits are. */
bool job_limit_take(struct job_limit *l, const struct job_request *r, bool is_running);

/* The volume's Job has ended, or is not requested now. Did that free a place? An unknown volume is fine. */
bool job_limit_leave(struct job_limit *l, const char *volume);

/* Removes the volumes that wait: a new leader enqueues all volumes again. */
void job_limit_forget_waiting(struct job_limit *l);

/* The waiting volume that may have its Job next; NULL: none. Valid until the limit changes. */
const char *job_limit_next(struct job_limit *l);

void job_limit_done(struct job_limit *l);
