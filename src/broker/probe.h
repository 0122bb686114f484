/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h - tests the store of a BucketSource with the identity of its Jobs: lists one key of each prefix.
 * home: any thread but the loop's; waits at most about 30 s. */
#pragma once

#include "api/source.h"
#include "credential_cache.h"

/* Returns the first error; *ret is set on failure, too. */
must_check int probe_source(struct credential_cache *k, const struct route_rules *rules, const struct api_source *s,
                            struct api_probe *ret, struct err *err);
