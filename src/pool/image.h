/* SPDX-License-Identifier: Apache-2.0 */
/* image.h - the loop backend: an XFS image, allocated in full, mounted on data/. Contracts as in disk.h. */
#pragma once

#include "pool/disk.h"

must_check int image_make(const struct disk *d, struct err *err);
must_check int image_attach(const struct disk *d, struct err *err);
must_check int image_grow(const struct disk *d, struct err *err);
must_check int image_set_writable(const struct disk *d, bool writable, struct err *err);
must_check int image_set_label(const struct disk *d, const char *label, struct err *err);
must_check int image_detach(const struct disk *d, struct err *err);
must_check int image_unbacked(const struct disk *d, uint64_t *ret_bytes, struct err *err);
must_check int image_release(const struct disk *d, struct err *err);
