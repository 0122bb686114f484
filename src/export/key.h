/* SPDX-License-Identifier: Apache-2.0 */
/* key.h - the object that a file becomes: its key, its parts. Pure. */
#pragma once

#include "util/err.h"
#include "util/str.h"

enum {
    KEY_BYTES_MAX = 1024, /* S3's and GCS's own limit */
    KEY_PARTS_MAX = 10000,
    KEY_PART_BYTES = 8 << 20, /* as hydration's; a part is the unit that a lost connection costs */
    KEY_VERSIONS_MAX = 1000,
};
#define KEY_OBJECT_BYTES_MAX (UINT64_C(5) << 40) /* S3's and GCS's own limit */

/* prefix + path; a prefix without '/' at its end is a folder all the same. `version` 1 is the name itself, 2 and more
 * add ".v2": what conflict=version does. ERR_INVALID (CIS4007) for what no bucket can hold under this name. */
must_check int key_make(struct str prefix, struct str path, uint64_t size_bytes, unsigned version, struct sbuf *ret,
                        struct err *err);

/* Bytes of a part: KEY_PART_BYTES, and as much more as keeps the file within KEY_PARTS_MAX parts; whole MiB, so that
 * every part begins aligned. */
uint64_t key_part_bytes(uint64_t size_bytes);
