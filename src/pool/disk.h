/* SPDX-License-Identifier: Apache-2.0 */
/* disk.h - Makes, attaches, grows, detaches and removes the disk of a volume, which limits its size. Blocking (mkfs,
 * fallocate). home: any thread; two calls for one volume never run at once (pool.h). Every step may be repeated:
 * after a crash, the same call completes it.
 *
 * quota  data/ is a directory of the pool's own XFS or ext4, limited by a project quota: instant to make, grow,
 * delete.
 * loop   data/ is where the image data.img (XFS) is mounted through a loop device. The device frees itself with the
 *        last mount (autoclear): a crash leaks none, and no record of it is needed. */
#pragma once

#include "spec/spec.h"

/* ---- which ------------------------------------------------------------------------------------------------------- */

struct disk_facts {
    char fs_type[16];     /* "ext4", "xfs", else a number */
    bool quota_accounted; /* project quota is counted on this file system */
    bool quota_enforced;  /* and held */
    bool loop;            /* /dev/loop-control answers */
};

/* Asks the kernel about the file system of the directory `dir`. Tests use facts of their own instead. */
must_check int disk_probe(int dir, struct disk_facts *ret, struct err *err);

enum { DISK_WHY_MAX = 160 };
/* Pure: `wanted` if it is possible, the better of the two for BACKEND_AUTO. `why` gets a sentence for users either
 * way (`cistern doctor`). ERR_UNSUPPORTED (CIS_QUOTA_UNSUPPORTED) if neither, or the wanted one, is possible. */
must_check int disk_choose(const struct disk_facts *f, enum spec_backend wanted, enum spec_backend *ret,
                           char why[DISK_WHY_MAX], struct err *err);

/* ---- one volume's disk ------------------------------------------------------------------------------------------- */

struct disk {
    enum spec_backend backend; /* BACKEND_AUTO: only to detach and release a volume of an unknown backend */
    int dir;                   /* borrowed; the volume's directory */
    const char *path;          /* borrowed; its absolute path, for mounts */
    uint64_t capacity_bytes;   /* promised */
    uint32_t project;          /* quota: the project id */
};

/* The functions of a backend. */
struct disk_operations {
    /* Makes data/ (and data.img, allocated in full). Durable when it returns. */
    int (*make)(const struct disk *d, struct err *err);
    /* Mounts data/ and finishes a growth that a crash interrupted. Does nothing if attached. */
    int (*attach)(const struct disk *d, struct err *err);
    /* Grows a disk to d->capacity_bytes, mounted or not, during writes. Never shrinks. ERR_NO_SPACE if the pool
     * has too little space: then the disk is unchanged. */
    int (*grow)(const struct disk *d, struct err *err);
    /* Forbids or allows writes by any mount of the attached disk, detached mounts and those of other namespaces
     * included. ERR_BUSY (CIS_VOLUME_IN_USE) while a file is open or mapped for writing. Does nothing if not
     * attached. */
    int (*set_writable)(const struct disk *d, bool writable, struct err *err);
    /* Attaches the disk with the SELinux label of all its files, NULL: none. A disk with another label is detached
     * first: ERR_BUSY (CIS_MOUNT_BUSY, CIS_CONTEXT_DIFFERS) while it is in use, which leaves it as it was. ERR_INVALID
     * (CIS_CONTEXT_UNSUPPORTED): the file system is shared with other volumes. */
    int (*set_label)(const struct disk *d, const char *label, struct err *err);
    /* Unmounts data/; not attached is success, in use is ERR_BUSY (CIS_MOUNT_BUSY). */
    int (*detach)(const struct disk *d, struct err *err);
    /* Reserved bytes that the pool's file system does not count as used yet: they must not be reserved again. */
    int (*unbacked)(const struct disk *d, uint64_t *ret_bytes, struct err *err);
    /* Makes a detached disk's directory removable: clears the immutable flag of the mount point, lifts the quota. */
    int (*release)(const struct disk *d, struct err *err);
};
extern const struct disk_operations disk_operations[]; /* by backend */

#define disk_make(d, err) disk_operations[(d)->backend].make((d), (err))
#define disk_attach(d, err) disk_operations[(d)->backend].attach((d), (err))
#define disk_grow(d, err) disk_operations[(d)->backend].grow((d), (err))
#define disk_set_writable(d, writable, err) disk_operations[(d)->backend].set_writable((d), (writable), (err))
#define disk_set_label(d, label, err) disk_operations[(d)->backend].set_label((d), (label), (err))
#define disk_detach(d, err) disk_operations[(d)->backend].detach((d), (err))
#define disk_unbacked(d, ret_bytes, err) disk_operations[(d)->backend].unbacked((d), (ret_bytes), (err))
#define disk_release(d, err) disk_operations[(d)->backend].release((d), (err))
