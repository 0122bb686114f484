/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.h - reads the limits of this process's control groups, version 1 or 2. home: any; reads a few small files. */
#pragma once

#include "util/str.h"

#define CGROUP_NO_LIMIT UINT64_MAX

/* The lowest limit of the groups of this process; CGROUP_NO_LIMIT without a readable limit. */
uint64_t cgroup_memory_limit(void); /* bytes */
uint64_t cgroup_cpu_limit(void);    /* thousandths of a CPU */

/* The same, of a process whose /proc/PID/cgroup reads `groups`, with the hierarchies mounted below directory `mounts`.
 * In a container a group's own path may be missing: then its parents count, up to the mount itself. */
uint64_t cgroup_memory_limit_of(struct str groups, int mounts);
uint64_t cgroup_cpu_limit_of(struct str groups, int mounts);
