/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h - how a volume is, in words: from what hydrate, export and the mounts left on disk.
 * home: any thread; reads files. */
#pragma once

#include "contract/health.h"
#include "driver.h"

void health_of(const struct volume *v, struct health *ret);

/* Is every byte of the source on the disk (or has it no source)? If not, *ret_text (HEALTH_TEXT_MAX) says how far it
 * is, and *ret_failed whether the last run ended in failure. */
bool data_is_whole(const struct volume *v, char *ret_text, bool *ret_failed);
