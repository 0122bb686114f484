/* SPDX-License-Identifier: Apache-2.0 */
/* local.h - the volumes of this machine for its agent, who makes and releases them by orders instead of CSI calls.
 * home: any thread. What changes a volume excludes CSI's calls for it, in this process and in the other driver of a
 * roll: ERR_PENDING, to be tried again. */
#pragma once

#include "csi/service.h"
#include "volume/release_state.h"
#include "volume/space.h"

size_t local_pool_count(const struct driver *d);
struct space *local_pool(const struct driver *d, size_t index);
/* Tries to open a pool that is not here, by what the API server knows of it. Open already is success. */
must_check int local_open_pool(struct driver *d, struct space *s, const struct space_witness *w, struct err *err);
/* By its name, or NULL. */
struct space *local_pool_named(const struct driver *d, const char *name);

/* Makes the volume, attached and empty; there already, as space_create() says. */
must_check int local_make(struct driver *d, struct space *s, const struct spec *want, struct err *err);

struct local_use {
    bool staged, published; /* mounted at this moment */
    bool read_only;
    uint64_t writes;            /* as in the record; 0: nobody could write, ever */
    enum release_stage release; /* how far its release is */
    bool fuse, passthrough;
    bool mount_is_dead;     /* staged through a keeper that has it no more */
    int64_t unpublished_ns; /* wall clock: since when nobody can; 0: somebody can, or never could */
};
must_check int local_use(struct driver *d, const struct volume *v, struct local_use *ret, struct err *err);

/* volume.json anew from the order, as space_restore(). ERR_PENDING while a call is at work on the volume. */
must_check int local_restore(struct driver *d, struct space *s, const struct spec *known, struct err *err);

/* What an order says of a release. */
struct local_order {
    const char *id;
    bool is_withdrawn; /* the release is not asked for any more */
    bool is_committed; /* and can not be withdrawn any more */
    bool may_discard;  /* what is not exported may go */
    /* Of a volume whose pool is not here: may it hold what its policy selects and nobody exported? */
    bool owes_if_absent;
    /* Marks the order, unless it was changed or withdrawn: ERR_PENDING. Blocks on the API server. */
    int (*commit)(void *ctx, struct err *err);
    void *ctx;
};

/* Takes the steps of release_state.h that can be taken now; *ret is the answer. */
must_check int local_release(struct driver *d, const struct local_order *o, enum release_step *ret, struct err *err);
