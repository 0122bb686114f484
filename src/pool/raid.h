/* SPDX-License-Identifier: Apache-2.0 */
/* raid.h - puts a pool's directory on RAID-0 of the node's NVMe disks, or on one disk or partition: finds or
 * creates and mounts it. Blocking (mdadm, mkfs.xfs). home: one thread at a time. Repeatable: the same call repairs
 * the state after a crash. */
#pragma once

#include "pool/local_disks.h"

/* Mounts the array's XFS at `path` with project quota; creates the path if it is missing. Errors as local_disks_plan(),
 * and those of the tools. */
must_check int raid_ensure(const struct local_disks_wanted *w, const char *path, struct err *err);

/* The same for the XFS of `w->device`, which is formatted if it is blank. ERR_NOT_FOUND (CIS_NO_DISK): the device
 * is missing. ERR_EXISTS (CIS_DISK_NOT_BLANK): it has other content. */
must_check int device_ensure(const struct local_disks_wanted *w, const char *path, struct err *err);
