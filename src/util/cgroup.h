/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.h - what the control groups, of either version, leave to this process. home: any; reads a few small files. */
#pragma once

#include "util/str.h"

#define CGROUP_NO_LIMIT UINT64_MAX

/* The least limit of the groups that this process is in; CGROUP_NO_LIMIT: there is none, or none that can be read. */
uint64_t cgroup_memory_limit(void); /* bytes */
uint64_t cgroup_cpu_limit(void);    /* thousandths of a CPU */

/* The same, of a process whose /proc/PID/cgroup reads `groups`, with the hierarchies mounted below folder `mounts`. In
 * a container a group's own path may not be there: then those above it tell, up to the mount itself. */
uint64_t cgroup_memory_limit_of(struct str groups, int mounts);
uint64_t cgroup_cpu_limit_of(struct str groups, int mounts);
