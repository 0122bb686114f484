/* SPDX-License-Identifier: Apache-2.0 */
/* signature.h - is a disk blank, and if not, what is on it? Pure: it looks at the disk's first and last bytes.
 *
 * Blank is a disk whose first and last MiB are zero, which is stricter than having no signature that we know: what we
 * do not know is somebody's all the same. */
#pragma once

#include "util/err.h"
#include "util/str.h"

enum { SIGNATURE_BYTES = 1 << 20, SIGNATURE_NAME_MAX = 33 };

enum signature_kind {
    SIGNATURE_BLANK,
    SIGNATURE_MEMBER, /* of a Linux array, metadata 1.2 */
    SIGNATURE_XFS,
    SIGNATURE_OTHER, /* `what` says what, as far as we know */
};

struct signature {
    enum signature_kind kind;
    const char *what; /* static: "ext4", "LVM", "a partition table", "unknown data"; "nothing" for BLANK */
    /* MEMBER */
    char set_name[SIGNATURE_NAME_MAX]; /* as mdadm --name gave it, without a host; printable, else '?' */
    char set_uuid[33];                 /* hex */
    uint32_t raid_disks;
    int32_t level;
};

/* `head` and `tail` are the first and last SIGNATURE_BYTES of the disk, less if it is smaller. */
void signature_read(struct str head, struct str tail, struct signature *ret);

/* The bytes of a sector that the XFS at the start of `head` was made with; 0 if there is none, or its superblock says
 * what mkfs.xfs never does. Of `head`, SIGNATURE_XFS_BYTES are looked at. */
enum { SIGNATURE_XFS_BYTES = 104 };
unsigned signature_xfs_sector(struct str head);

/* Of the block device at `path`. */
must_check int signature_of_device(const char *path, struct signature *ret, struct err *err);
