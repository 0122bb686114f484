/* SPDX-License-Identifier: Apache-2.0 */
/* shard.h - assigns each object to one of `count` volumes, so that all get the same bytes within a few percent. Pure,
 * and the same on every machine and in every version.
 *
 * A small object is assigned by its path. Large objects are assigned by size, the largest first, each to the volume
 * that has the least so far. This depends on the listing, which must be the same for all volumes (docs/design/003).
 * Memory: 24 bytes for each large object, of which there are about a million at most. */
#pragma once

#include "catalog/index.h"

enum { SHARDS_MAX = 1024 };

struct shard {
    unsigned index; /* 0 .. count - 1 */
    unsigned count; /* 0 or 1: all objects */
};

/* "0/4" to "3/4". */
must_check int shard_parse(struct str text, struct shard *ret, struct err *err);

/* Calls `mine` for each of the shard's objects, in order of ids; a negative result ends it. `x` is complete. */
must_check int shard_assign(const struct index *x, const struct shard *s,
                            int (*mine)(void *ctx, const struct index_entry *e, struct err *err), void *ctx,
                            struct err *err);
