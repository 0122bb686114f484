/* SPDX-License-Identifier: Apache-2.0 */
/* raid.h - a pool's directory on RAID-0 of the node's NVMe disks, or on one disk or partition: found, or made once, and
 * mounted. Blocking (mdadm, mkfs.xfs). home: one thread at a time. Repeatable: a crash anywhere is mended by the same
 * call. */
#pragma once

#include "pool/disks.h"

/* When it returns, the array's XFS is mounted at `path` (made if it is not there), with project quota. Errors as
 * disks_plan(), and those of the tools. */
must_check int raid_ensure(const struct disks_wanted *w, const char *path, struct err *err);

/* The same for the XFS of `w->device`, which is formatted if it is blank. ERR_NOT_FOUND (CIS_NO_DISK): it is missing.
 * ERR_EXISTS (CIS_DISK_NOT_BLANK): it holds something else. */
must_check int device_ensure(const struct disks_wanted *w, const char *path, struct err *err);
