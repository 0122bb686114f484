/* SPDX-License-Identifier: Apache-2.0 */
/* caps.h - Checks volume capabilities and capacity ranges. Pure. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <proto/csi.pb-c.h>

/* ERR_INVALID for unsupported capabilities: block volumes, several nodes, a file-system type, and mount flags
 * other than one context. */
must_check int caps_check(const Csi__V1__VolumeCapability *c, struct err *err);
/* Checks all capabilities; at least one is required. */
must_check int caps_check_all(Csi__V1__VolumeCapability *const *c, size_t count, struct err *err);

bool caps_is_read_only(const Csi__V1__VolumeCapability *c);
/* May the volume be published at several paths? Not with a single-writer access mode. */
bool caps_is_shared(const Csi__V1__VolumeCapability *c);

/* The SELinux label of the mount flag context="LABEL", a view into `c`; empty if the flag is missing. */
must_check int caps_context(const Csi__V1__VolumeCapability *c, struct str *ret, struct err *err);

/* The fsGroup; if none is requested, *ret_has is false and the result 0. */
must_check int caps_group(const Csi__V1__VolumeCapability *c, bool *ret_has, uint32_t *ret, struct err *err);

/* The size to create: at least the required one and `least`, at most the limit (0 in *ret_limit: none) and `most`
 * (0: none). ERR_RANGE, ERR_INVALID. */
must_check int caps_size(const Csi__V1__CapacityRange *r, uint64_t least, uint64_t most, uint64_t *ret,
                         uint64_t *ret_limit, struct err *err);
