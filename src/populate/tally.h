/* SPDX-License-Identifier: Apache-2.0 */
/* tally.h - the status of a BucketSource, gathered from the volumes that were made from it. Pure.
 * home: whoever owns the source.
 *
 * tally_begin, tally_add for each volume, tally_end: what the last listing, error and export were stays when their
 * volume has gone. */
#pragma once

#include "api/source.h"
#include "api/volume.h"

void tally_begin(struct api_source *s);
void tally_add(struct api_source *s, const struct api_volume *v);
void tally_end(struct api_source *s, int64_t now_ns);

/* How large a claim for so many bytes should be: 5 % for the file system, and 1 GiB. */
uint64_t tally_suggested_bytes(uint64_t bytes);
