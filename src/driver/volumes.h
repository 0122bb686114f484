/* SPDX-License-Identifier: Apache-2.0 */
/* volumes.h - The volumes of this machine for the node's agent, which creates and releases them by orders instead of
 * CSI calls. home: any thread. A change excludes CSI calls for the volume, in this process and in another driver:
 * ERR_PENDING, to be retried.
 * Code: volumes.c, driver.c (opening a pool) and release.c. */
#pragma once

#include "driver/driver.h"
#include "pool/pool.h"
#include "spec/release_state.h"

size_t driver_pool_count(const struct driver *d);
struct pool *driver_pool_at(const struct driver *d, size_t index);
/* Opens a pool that is not open. `w` is what the API server knows of the pool; NULL opens only a pool that exists.
 * Success if the pool is open already. */
must_check int driver_open_pool(struct driver *d, struct pool *p, const struct pool_witness *w, struct err *err);
/* By its name, or NULL. */
struct pool *driver_pool_named(const struct driver *d, const char *name);

/* Creates the volume, attached and empty. For an existing volume see pool_create_volume(). */
must_check int driver_create_volume(struct driver *d, struct pool *p, const struct spec *want, struct err *err);

struct volume_use {
    bool staged, published; /* mounted at this moment */
    bool read_only;
    uint64_t writes;            /* as in the record; 0: it was never writable */
    enum release_stage release; /* how far its release is */
    bool fuse, passthrough;
    bool mount_is_dead;     /* staged, but its keeper has no mount of it */
    int64_t unpublished_ns; /* wall clock: since when it is unpublished; 0: it is published, or never was */
};
must_check int driver_volume_use(struct driver *d, const struct volume *v, struct volume_use *ret, struct err *err);

/* Writes volume.json again from the order, as pool_restore_volume() does. ERR_PENDING: a call works on the volume. */
must_check int driver_restore_volume(struct driver *d, struct pool *p, const struct spec *known, struct err *err);

/* The parts of an order that concern a release. */
struct release_order {
    const struct volume_id *id; /* borrowed */
    bool is_withdrawn;          /* the release was withdrawn */
    bool is_committed;          /* the release can no longer be withdrawn */
    bool may_discard;           /* files that were not exported may be deleted */
    /* the missing pool may have unexported files that the policy selects */
    bool owes_if_absent;
    /* Marks the order as committed. ERR_PENDING if it was changed or withdrawn. Blocks on the API server. */
    int (*commit)(void *ctx, struct err *err);
    void *ctx;
};

/* Takes the steps of spec/release_state.h that are possible now; *ret is the answer. */
must_check int driver_release_volume(struct driver *d, const struct release_order *o, enum release_step *ret,
                                     struct err *err);
