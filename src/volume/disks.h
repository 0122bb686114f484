/* SPDX-License-Identifier: Apache-2.0 */
/* disks.h - the disks of this machine, as /sys tells of them, and which of them a pool is to be made of.
 * home: the caller's. The scan reads small files; the plan is pure. */
#pragma once

#include "volume/signature.h"

enum { DISKS_MAX = 64, DISK_NAME_MAX = 32, DISK_TEXT_MAX = 64 };

struct disk_info {
    char name[DISK_NAME_MAX]; /* nvme1n1; the device is /dev/nvme1n1 */
    char model[DISK_TEXT_MAX];
    char serial[DISK_TEXT_MAX];
    uint64_t bytes;
    bool read_only;
    bool has_partitions;
    char holder[DISK_NAME_MAX]; /* what is made of it: md127, dm-0; "" */
    struct signature signature; /* not from /sys: the caller's to fill in */
};

/* Every NVMe disk below `sys` ("/sys"), by name. ERR_NO_SPACE for more than DISKS_MAX. */
must_check int disks_scan(const char *sys, struct disk_info ret[DISKS_MAX], size_t *ret_count, struct err *err);

/* What somebody asked for: disks by patterns of their model, or by their names below /dev; and the exact serials of
 * those whose content may go. */
struct disks_wish {
    const char *pool;
    const char *const *models;
    size_t model_count;
    const char *const *names; /* "nvme1n1", or a pattern */
    size_t name_count;
    const char *const *wipe;
    size_t wipe_count;
};

enum disks_step {
    DISKS_CREATE,   /* an array is to be made of `members` */
    DISKS_ASSEMBLE, /* they are one that we made, and it does not run */
    DISKS_RUNNING,  /* it runs, as /dev/<array> */
};

struct disks_plan {
    enum disks_step step;
    char array[DISK_NAME_MAX];
    const struct disk_info *members[DISKS_MAX]; /* borrowed */
    size_t count;
};

bool disks_wants(const struct disks_wish *w, const struct disk_info *d);

/* An array is ours by its name, which holds the pool's: it is never made again over itself, whatever `wipe` says.
 * ERR_NOT_FOUND (CIS2040): no disk is like that. ERR_EXISTS (CIS2041): one has content, or is in use. ERR_CORRUPT
 * (CIS2042): some of the members of ours are not there. */
must_check int disks_plan(const struct disks_wish *w, const struct disk_info *disks, size_t count,
                          struct disks_plan *ret, struct err *err);

/* The name that our array of this pool has. */
void disks_array_name(const char *pool, char ret[SIGNATURE_NAME_MAX]);
