/* SPDX-License-Identifier: Apache-2.0 */
/* key.h - the object that a file becomes: its key, its parts and their checksums. Pure. */
#pragma once

#include "logbook.h"

enum {
    KEY_BYTES_MAX = 1024,     /* S3's and GCS's own limit */
    KEY_PART_BYTES = 8 << 20, /* as hydration's; a lost connection costs at most one part */
    KEY_VERSIONS_MAX = 1000,
};
/* GCS's own limit. S3's is 50 TB since December 2025, which exports do not use yet. */
#define KEY_OBJECT_BYTES_MAX (UINT64_C(5) << 40)

/* prefix + path; a prefix without '/' at its end is a directory all the same. `version` 1 is the key itself, N > 1
 * adds ".vN", as conflict=version requires. ERR_INVALID (CIS_PATH_NOT_A_KEY): no bucket can have such a key. */
must_check int key_make(struct str prefix, struct str path, uint64_t size_bytes, unsigned version, struct sbuf *ret,
                        struct err *err);

/* Bytes of a part: KEY_PART_BYTES, or more if the file would have more than `parts_max` parts. Whole MiB, so that every
 * part begins aligned. */
uint64_t key_part_bytes(uint64_t size_bytes, unsigned parts_max);

/* The checksum of the whole object from those of its parts. HASH_NONE if the parts have several kinds, or a kind
 * that does not combine. `count` is at least 1 here and below. */
struct digest parts_join(const struct logbook_part *parts, unsigned count);

/* The checksum over the parts' digests, as in a composite checksum of S3, or the ETag of a multipart object.
 * HASH_NONE if the parts have several kinds. */
struct digest parts_composite(const struct logbook_part *parts, unsigned count);
