/* SPDX-License-Identifier: Apache-2.0 */
/* facts.h - how the volume of an order is on this machine's disk: what the agent decides by, and what it tells.
 * home: whoever reads them. Reading blocks on the disk. */
#pragma once

#include "api/volume.h"
#include "csi/local.h"
#include "export/verdict.h"
#include "hydrate/status.h"

struct facts {
    struct space *space;   /* borrowed: the pool of the order's name, if it is here; NULL: it is not */
    struct err absence;    /* then, why */
    bool id_is_of_pool;    /* as its UUID is now */
    bool is_replaced;      /* the pool that had the volume last is this one, or one that this one has replaced */
    bool here;             /* the volume is on the disk; else nothing below is said */
    struct volume *volume; /* owned */
    bool differs;          /* what may change, and was changed in the order */
    bool has_source;
    bool hydrating;                   /* somebody is at it */
    struct hydrate_status *hydration; /* owned; NULL: no hydration has begun */
    struct verdict verdict;
    struct local_use use;
    struct volume_usage usage; /* zero: its disk is not mounted */
};

/* ERR_CORRUPT, ERR_UNSUPPORTED: the record of the volume cannot be read; if its release with all that was not exported
 * is asked for, it is only not `here`. */
must_check int facts_read(struct driver *d, const struct api_volume *order, struct facts *ret, struct err *err);
void facts_done(struct facts *f); /* may run twice */
#define auto_facts auto_with(facts_done) struct facts

/* Is all of the source on the disk, or is there none? */
bool facts_whole(const struct facts *f);

/* Has an export for the last pod that wrote to be made? For release, local_release() says it. */
bool facts_owe_export(const struct facts *f);
