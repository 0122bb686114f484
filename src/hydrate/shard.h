/* SPDX-License-Identifier: Apache-2.0 */
/* shard.h - which of `count` volumes an object belongs to: each to exactly one, and to all of them the same bytes
 * within a few percent. Pure, and the same on every machine and in every version.
 *
 * A small object goes by its path alone. One that is a visible part of a volume's share is dealt by size, the largest
 * first, to the volume that has the least: by the listing, then, which must be the same for all (docs/design/003).
 * Memory: 24 bytes for each of the large ones, of which there are about a million at most. */
#pragma once

#include "catalog/index.h"

enum { SHARDS_MAX = 1024 };

struct shard {
    unsigned index; /* 0 .. count - 1 */
    unsigned count; /* 0 or 1: all objects */
};

/* "0/4" to "3/4". */
must_check int shard_parse(struct str text, struct shard *ret, struct err *err);

/* Calls `mine` for each of the shard's objects, in order of ids; negative ends it. `x` is complete. */
must_check int shard_deal(const struct index *x, const struct shard *s,
                          int (*mine)(void *ctx, const struct index_entry *e, struct err *err), void *ctx,
                          struct err *err);
