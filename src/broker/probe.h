/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h - does the store of a BucketSource answer to whom its volumes' Jobs will be? Reads one key of each prefix.
 * home: any thread but the loop's; waits, about 30 s at most. */
#pragma once

#include "api/source.h"
#include "keep.h"

/* The error of what failed first; *ret says how far it came, then too. */
must_check int probe_source(struct keep *k, const struct route_rules *rules, const struct api_source *s,
                            struct api_probe *ret, struct err *err);
