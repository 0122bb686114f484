/* SPDX-License-Identifier: Apache-2.0 */
/* disk.h - the hard limit under a volume: make, attach, grow, detach. Blocking (mkfs, fallocate). home: any thread; two
 * calls for one volume never run at once (space.h sees to it). Every step may be repeated: a crash anywhere is mended
 * by the same call again.
 *
 * quota  data/ is a folder of the pool's own XFS or ext4, limited by a project quota: instant to make, grow, delete.
 * loop   data/ is where the image data.img (XFS) is mounted through a loop device. The device frees itself with the
 *        last mount (autoclear), so that no crash can leak one, and no record of it is needed. */
#pragma once

#include "util/err.h"
#include "util/str.h"

enum disk_backend { DISK_AUTO, DISK_QUOTA, DISK_LOOP };
const char *disk_backend_name(enum disk_backend b); /* "quota"; "auto" */
must_check int disk_backend_parse(struct str s, enum disk_backend *ret, struct err *err);

/* ---- which ------------------------------------------------------------------------------------------------------- */

struct disk_facts {
    char fs_type[16];     /* "ext4", "xfs", else a number */
    bool quota_accounted; /* project quota is counted on this file system */
    bool quota_enforced;  /* and held */
    bool loop;            /* /dev/loop-control answers */
};

/* Asks the kernel about the file system of the folder `dir`. Tests put facts of their own in its place. */
must_check int disk_probe(int dir, struct disk_facts *ret, struct err *err);

enum { DISK_WHY_MAX = 160 };
/* Pure: `wish` if it can be had, the better of the two for DISK_AUTO. `why` gets a sentence for people either way
 * (`cistern doctor`). ERR_UNSUPPORTED (CIS2020) if neither, or the wished one cannot be had. */
must_check int disk_choose(const struct disk_facts *f, enum disk_backend wish, enum disk_backend *ret,
                           char why[DISK_WHY_MAX], struct err *err);

/* ---- one volume's disk ------------------------------------------------------------------------------------------- */

enum {
    DISK_BYTES_MIN = 16 << 20, /* the least that XFS makes a file system of */
};

struct disk {
    enum disk_backend backend; /* DISK_AUTO only to detach and release what is left of an unknown one */
    int dir;                   /* borrowed; the volume's folder */
    const char *path;          /* borrowed; its absolute path, for mounts */
    uint64_t capacity_bytes;   /* promised */
    uint32_t project;          /* quota: the project id */
};

/* Makes data/ (and data.img, allocated in full). Durable when it returns. */
must_check int disk_make(const struct disk *d, struct err *err);

/* Mounts data/ and finishes a growth that a crash cut short. Attached already: nothing to do. */
must_check int disk_attach(const struct disk *d, struct err *err);

/* Brings a disk to d->capacity_bytes, mounted or not, while it is written to. Never shrinks. ERR_NO_SPACE if the pool
 * cannot back it: then the disk is as it was. */
must_check int disk_grow(const struct disk *d, struct err *err);

/* Unmounts data/; not attached is success, in use is ERR_BUSY (CIS3010). */
must_check int disk_detach(const struct disk *d, struct err *err);

/* Bytes of the promise that the pool's file system does not count as used yet: they must not be promised again. */
must_check int disk_unbacked(const struct disk *d, uint64_t *ret_bytes, struct err *err);

/* Makes a detached disk's folder removable (mount point unguarded, quota lifted). */
must_check int disk_release(const struct disk *d, struct err *err);
