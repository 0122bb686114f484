/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h - Parts of the FUSE protocol that the kernel headers of Debian 12 lack. */
#pragma once

#include <assert.h>
#include <linux/fuse.h>
#include <stdint.h>
#include <sys/ioctl.h>

/* Linux 6.9: the kernel resends requests without a reply, with this bit in their id. */
#define KERNEL_NOTIFY_RESEND 7
#define KERNEL_UNIQUE_RESENT (UINT64_C(1) << 63)

/* Linux 6.12, in flags2 of INIT: the mount may be mapped to other ids, as for a pod in a user namespace. Needs the
 * mount option default_permissions. From then on only requests that make a file state the user's ids. */
#define KERNEL_INIT2_ALLOW_IDMAP (UINT32_C(1) << (40 - 32))

/* Linux 6.9: registers a lower file as a backing id for replies to OPEN. An O_PATH descriptor will do: the kernel opens
 * the file again for each user, with the user's flags and the credentials of the process that registered it. */
struct kernel_backing_map {
    int32_t fd;
    uint32_t flags;
    uint64_t padding;
};
#define KERNEL_BACKING_OPEN _IOW(229, 1, struct kernel_backing_map)

/* Linux 6.6: statx(2) for a time of birth, which GETATTR has no room for. */
#define KERNEL_STATX 52
struct kernel_statx_in {
    uint32_t getattr_flags, reserved;
    uint64_t fh;
    uint32_t flags, mask;
};
struct kernel_statx_time {
    int64_t sec;
    uint32_t nsec;
    int32_t reserved;
};
struct kernel_statx_out {
    uint64_t attr_valid; /* seconds that the kernel may cache all of this */
    uint32_t attr_valid_nsec, flags;
    uint64_t spare[2];
    uint32_t mask, blksize;
    uint64_t attributes;
    uint32_t nlink, uid, gid;
    uint16_t mode, spare0[1];
    uint64_t ino, size, blocks, attributes_mask;
    struct kernel_statx_time atime, btime, ctime, mtime;
    uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
    uint64_t spare2[14];
};
static_assert(sizeof(struct kernel_statx_out) == 32 + 256, "as the kernel has it");
