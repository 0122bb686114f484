/* SPDX-License-Identifier: Apache-2.0 */
/* observed.h - Reads the state of an order's volume from this machine's disk.
 * home: the caller's thread. Reading blocks on the disk. */
#pragma once

#include "api/volume.h"
#include "driver/volumes.h"
#include "export/verdict.h"
#include "hydrate/status.h"

struct observed {
    struct pool *pool;     /* borrowed: the order's pool; NULL: not here */
    struct err absence;    /* why it is not here */
    bool id_is_of_pool;    /* with its present UUID */
    bool is_replaced;      /* the volume's last pool is this one, or one that this pool replaced */
    bool here;             /* the volume is on the disk; else the rest is unset */
    struct volume *volume; /* owned */
    bool differs;          /* the order has new values for mutable parameters */
    bool has_source;
    bool hydrating;                   /* a process hydrates it now */
    struct hydrate_status *hydration; /* owned; NULL: no hydration has begun */
    struct verdict verdict;
    struct volume_use use;
    struct volume_usage usage; /* zero: its disk is not mounted */
};

/* ERR_CORRUPT, ERR_UNSUPPORTED: the volume's record cannot be read. If the order releases it without export, that is no
 * error, and it is not `here`. */
must_check int observed_read(struct driver *d, const struct api_volume *order, struct observed *ret, struct err *err);
void observed_done(struct observed *f); /* may run twice */
#define auto_observed auto_with(observed_done) struct observed

/* Whether all of its source is on the disk; true without a source. */
bool observed_whole(const struct observed *f);

/* Whether an export that began after the last pod with write access has succeeded. */
bool observed_is_exported(const struct observed *f);

/* Whether an export for the last pod with write access is due. For release, driver_release_volume() decides. */
bool observed_owe_export(const struct observed *f);
