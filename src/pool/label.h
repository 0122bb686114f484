/* SPDX-License-Identifier: Apache-2.0 */
/* label.h - Compares SELinux labels. Pure. home: any thread. */
#pragma once

#include "util/str.h"

/* Are both labels the same to the kernel? It reports the categories of a label sorted, and joins them to ranges:
 * "s0:c27,c4" as "s0:c4,c27", "s0:c1,c2,c3" as "s0:c1.c3", and "s0-s0" as "s0". */
bool label_eq(struct str a, struct str b);
