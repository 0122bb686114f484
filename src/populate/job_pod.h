/* SPDX-License-Identifier: Apache-2.0 */
/* job_pod.h - finds why the pod of a Job does not start, or was ended from outside. Its owner sees neither the pod nor
 * the Job, which are in Cistern's namespace. Pure. home: any. */
#pragma once

#include "util/json.h"
#include "volume_events.h"

/* False: it runs, has just been created, or ended by itself (then the result on disk has the cause). */
bool job_pod_trouble(const json *pod, int64_t now_ns, struct populate_event *ret);

/* Equal while the pod, by its key, has the same trouble. */
uint64_t job_pod_trouble_hash(struct str pod, const struct populate_event *trouble);
