/* SPDX-License-Identifier: Apache-2.0 */
/* local.h - the volumes of this machine for its agent, who makes and releases them by orders instead of CSI calls.
 * home: any thread. What changes a volume excludes CSI's calls for it, in this process and in the other driver of a
 * roll: ERR_PENDING, to be tried again. */
#pragma once

#include "csi/service.h"
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
    bool written; /* somebody could write, ever */
    bool is_new;  /* nothing is recorded: nobody ever had it, or the record is gone */
    bool fuse, passthrough;
    bool mount_is_dead;     /* staged through a keeper that has it no more */
    int64_t unpublished_ns; /* wall clock: since when nobody can; 0: somebody can, or never could */
};
must_check int local_use(struct driver *d, const struct volume *v, struct local_use *ret, struct err *err);

/* volume.json anew from the order, as space_restore(). ERR_PENDING while a call is at work on the volume. */
must_check int local_restore(struct driver *d, struct space *s, const struct spec *known, struct err *err);

/* Who knows better says of a volume that is_new that somebody could write to it. It stays so. */
must_check int local_note_written(struct driver *d, const struct volume *v, struct err *err);

enum release_step {
    RELEASE_GONE,          /* it is in the trash, or was not there */
    RELEASE_IN_USE,        /* staged or published */
    RELEASE_AT_WORK,       /* a hydration or an export runs */
    RELEASE_EXPORT_DUE,    /* an export for release has to come first */
    RELEASE_EXPORT_FAILED, /* and one did, and failed */
};

/* Brings the volume's end as near as it can be brought now. `discard`: what is not exported may go. */
must_check int local_release(struct driver *d, const char *id, bool discard, enum release_step *ret, struct err *err);
