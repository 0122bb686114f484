/* SPDX-License-Identifier: Apache-2.0 */
/* tally.h - the status of a BucketSource, gathered from the volumes that were made from it. Pure.
 * home: whoever owns the source.
 *
 * tally_begin, tally_add for each volume, tally_end: what the last listing, error and export were stays when their
 * volume has gone. */
#pragma once

#include "api/source.h"
#include "api/volume.h"

/* What the store said when it was last asked, see api_probe. */
struct tally_probe {
    enum { TALLY_NOT_PROBED, TALLY_PROBE_DUE, TALLY_PROBED } state; /* nobody asks; soon; it was */
    struct api_probe answer;
    const struct err *err; /* borrowed; NULL: it answered */
    int64_t time_ns;
};

void tally_begin(struct api_source *s);
void tally_add(struct api_source *s, const struct api_volume *v);
/* While a probe is due, what was found of this generation before stands. */
void tally_end(struct api_source *s, const struct tally_probe *p, int64_t now_ns);

/* How large a claim for so many bytes should be: 5 % for the file system, and 1 GiB. */
uint64_t tally_suggested_bytes(uint64_t bytes);
