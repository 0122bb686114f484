/* SPDX-License-Identifier: Apache-2.0 */
/* caps.h - which volume capabilities we can give. Pure. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <proto/csi.pb-c.h>

/* ERR_INVALID says what we have not: block volumes, several nodes, a file-system type, mount flags. */
must_check int caps_check(const Csi__V1__VolumeCapability *c, struct err *err);
/* All of them, of which there must be one at least. */
must_check int caps_check_all(Csi__V1__VolumeCapability *const *c, size_t count, struct err *err);

bool caps_is_read_only(const Csi__V1__VolumeCapability *c);
/* May it be published at several paths? Not for one writer. */
bool caps_is_shared(const Csi__V1__VolumeCapability *c);

/* The fsGroup: *ret_has false, and 0, if none is asked for. */
must_check int caps_group(const Csi__V1__VolumeCapability *c, bool *ret_has, uint32_t *ret, struct err *err);

/* "SINGLE_NODE_WRITER" */
const char *caps_mode_name(int mode);

/* The size to make: at least what is required and what we can make, at most the limit (0 in *ret_limit: none).
 * `least` and `most` are ours, most 0: none. ERR_RANGE, ERR_INVALID. */
must_check int caps_size(const Csi__V1__CapacityRange *r, uint64_t least, uint64_t most, uint64_t *ret,
                         uint64_t *ret_limit, struct err *err);
