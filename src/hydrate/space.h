/* SPDX-License-Identifier: Apache-2.0 */
/* space.h - Compares the space that the source needs with the space of the file system, and counts what earlier runs
 * left in it. home: as the lister's. */
#pragma once

#include "util/err.h"
#include <stdatomic.h>

struct hydrate;

struct hydrate_space {
    uint64_t free_bytes, free_files, block_bytes; /* including what earlier runs wrote */
    uint64_t outdated_bytes;                      /* of files that stay until they are replaced; part of free_bytes */
    uint64_t need_bytes, need_files, largest_bytes;
    _Atomic bool is_exceeded; /* fetch nothing more; the listing goes on, to report the whole size */
};

void hydrate_space_count(struct hydrate *h, uint64_t size_bytes); /* counts an object */
/* ERR_NO_SPACE (CIS_SOURCE_TOO_LARGE): the counted objects do not fit. */
must_check int hydrate_space_check(struct hydrate *h, struct err *err);
/* Counts what earlier runs left, before anything is fetched. A file that is missing counts as not written. */
must_check int hydrate_space_recover(struct hydrate *h, struct err *err);
