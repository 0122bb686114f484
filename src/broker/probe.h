/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h - tests the stores of a BucketSource with the identities of its Jobs: lists one key of each prefix, and tests
 * the right to export without writing an object.
 * home: any thread but the loop's; waits at most about 30 s. */
#pragma once

#include "api/source.h"
#include "credential_cache.h"

/* Returns the first error of reading; *ret is set on failure, too. */
must_check int probe_source(struct credential_cache *k, const struct route_rules *rules, const struct api_source *s,
                            struct api_probe *ret, struct err *err);
