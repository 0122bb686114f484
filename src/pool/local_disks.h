/* SPDX-License-Identifier: Apache-2.0 */
/* local_disks.h - Scans the disks of this machine in /sys, and plans which of them become a pool. home: the caller's.
 * The scan reads small files; the plan is pure. */
#pragma once

#include "pool/signature.h"

enum { LOCAL_DISKS_MAX = 64, LOCAL_DISK_NAME_MAX = 32, LOCAL_DISK_TEXT_MAX = 64 };

struct local_disk {
    char name[LOCAL_DISK_NAME_MAX]; /* nvme1n1; the device is /dev/nvme1n1 */
    char model[LOCAL_DISK_TEXT_MAX];
    char serial[LOCAL_DISK_TEXT_MAX];
    uint64_t bytes;
    bool read_only;
    bool has_partitions;
    char holder[LOCAL_DISK_NAME_MAX]; /* the array or mapping that uses it: md127, dm-0; "" */
    struct signature signature;       /* not from /sys: the caller fills it in */
};

/* Every NVMe disk below `sys` ("/sys"), by name. ERR_NO_SPACE for more than LOCAL_DISKS_MAX. */
must_check int local_disks_scan(const char *sys, struct local_disk ret[LOCAL_DISKS_MAX], size_t *ret_count,
                                struct err *err);

/* The configured disks, by patterns of their models or by names in /dev, and the exact serials of disks that may be
 * wiped. */
struct local_disks_wanted {
    const char *pool;
    const char *const *models;
    size_t model_count;
    const char *const *names; /* "nvme1n1", or a pattern */
    size_t name_count;
    const char *const *wipe;
    size_t wipe_count;
    const char *device; /* instead of an array: the one disk or partition, "/dev/disk/by-partlabel/cistern" */
};

enum local_disks_step {
    LOCAL_DISKS_CREATE,   /* create an array of `members` */
    LOCAL_DISKS_ASSEMBLE, /* they form the pool's array, which does not run */
    LOCAL_DISKS_RUNNING,  /* the array runs, as /dev/<array> */
};

struct local_disks_plan {
    enum local_disks_step step;
    char array[LOCAL_DISK_NAME_MAX];
    const struct local_disk *members[LOCAL_DISKS_MAX]; /* borrowed */
    size_t count;
};

bool local_disks_match(const struct local_disks_wanted *w, const struct local_disk *d);

/* Cistern recognizes its array by its name, which contains the pool's. It never creates an array over its own,
 * even if `wipe` names the disks. ERR_NOT_FOUND (CIS_NO_DISK): no disk matches. ERR_EXISTS (CIS_DISK_NOT_BLANK): a
 * disk has content, or is in use. ERR_CORRUPT (CIS_ARRAY_DISK_MISSING): members of the array are missing. */
must_check int local_disks_plan(const struct local_disks_wanted *w, const struct local_disk *disks, size_t count,
                                struct local_disks_plan *ret, struct err *err);

/* The name of the pool's array. */
void local_disks_array_name(const char *pool, char ret[SIGNATURE_NAME_MAX]);
