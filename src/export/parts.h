/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h - the checksum of a whole by those of its parts, as stores tell it. Pure. */
#pragma once

#include "logbook.h"

/* Of the whole object's bytes. HASH_NONE where the parts have several kinds, or one that does not combine. */
struct digest parts_join(const struct logbook_part *parts, unsigned count);

/* Over the parts' digests, as in a composite checksum of S3, or the ETag of an object of parts. HASH_NONE where they
 * have several kinds. `count` is 1 at least in both. */
struct digest parts_composite(const struct logbook_part *parts, unsigned count);
