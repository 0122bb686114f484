/* SPDX-License-Identifier: Apache-2.0 */
/* export_limit.h - limits how many volumes are exported at once: in all, on one node and for one namespace. Pure: the
 * owner looks at waiting volumes again, and guards the limit by its lock.
 *
 * A namespace gets at most half of the exports, in all and on each node. So exports that never end cost no other
 * namespace its own. The next export is of the namespace with the fewest running exports. Namespaces with equally many
 * take turns, and the volumes of one are exported in the order in which they came. */
#pragma once

#include "util/list.h"

enum { EXPORT_LIMIT_MAX = 4096 }; /* of `max`; a higher number means no limit */

struct export_limit {
    unsigned max, max_per_node; /* 0: no limit. Set once */
    struct list exports;        /* owned; in the order in which they may start */
};

struct export_request {
    const char *volume, *node, *ns; /* ns: of the claim; "": none */
};

/* May this volume be exported now? If not, it waits until export_limit_leave(). `is_running`: its export runs
 * already, whatever the limits are. */
bool export_limit_take(struct export_limit *l, const struct export_request *r, bool is_running);

/* The volume's export has ended, or is not requested now. An unknown volume is fine. */
void export_limit_leave(struct export_limit *l, const char *volume);

/* Removes the volumes that wait: a new leader enqueues all volumes again. */
void export_limit_forget_waiting(struct export_limit *l);

/* The waiting volume that may be exported next; NULL: none. Valid until the limit changes. */
const char *export_limit_next(struct export_limit *l);

void export_limit_done(struct export_limit *l);
