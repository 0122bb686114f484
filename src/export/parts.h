/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h - the checksum of a whole by those of its parts, as stores tell it. Pure. */
#pragma once

#include "logbook.h"

/* CRCs combine; of MD5s S3 takes the MD5 again. HASH_NONE where the parts have several kinds, or one that joins in
 * neither way. `count` is 1 at least. */
struct digest parts_join(const struct logbook_part *parts, unsigned count);
