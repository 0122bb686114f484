/* SPDX-License-Identifier: Apache-2.0 */
/* signature.h - Finds out whether a disk is blank, and otherwise what is on it. Pure: reads the first and last bytes
 * of the disk.
 *
 * A disk is blank if its first and last MiB are zero. That is stricter than having no known signature: unknown
 * content counts as content. */
#pragma once

#include "util/err.h"
#include "util/str.h"

enum { SIGNATURE_BYTES = 1 << 20, SIGNATURE_NAME_MAX = 33 };

enum signature_kind {
    SIGNATURE_BLANK,
    SIGNATURE_MEMBER, /* of a Linux array, metadata 1.2 */
    SIGNATURE_XFS,
    SIGNATURE_OTHER, /* `what` names the content, if it is known */
};

struct signature {
    enum signature_kind kind;
    const char *what; /* static: "ext4", "LVM", "a partition table", "unknown data"; "nothing" for BLANK */
    /* MEMBER */
    char set_name[SIGNATURE_NAME_MAX]; /* the name given to mdadm --name, without a host; printable, else '?' */
    char set_uuid[33];                 /* hex */
    uint32_t raid_disks;
    int32_t level;
};

/* `head` and `tail` are the first and last SIGNATURE_BYTES of the disk, or fewer if it is smaller. */
void signature_read(struct str head, struct str tail, struct signature *ret);

/* The sector size of the XFS at the start of `head`, of which the first SIGNATURE_XFS_BYTES are read. 0 if it has no
 * XFS, or a superblock that mkfs.xfs never writes. */
enum { SIGNATURE_XFS_BYTES = 104 };
unsigned signature_xfs_sector(struct str head);

/* Of the block device at `path`. */
must_check int signature_of_device(const char *path, struct signature *ret, struct err *err);
