/* SPDX-License-Identifier: Apache-2.0 */
/* quota.h - The quota backend: a directory with a project quota of XFS or ext4. Contracts as in disk.h. */
#pragma once

#include "pool/disk.h"

/* Is project quota counted, and is it enforced, on the file system of the directory `dir`? False if the kernel
 * cannot tell. */
void quota_state(int dir, bool *ret_accounted, bool *ret_enforced);

/* A project id that is unused on the file system of `dir`. */
must_check int quota_project_new(int dir, uint32_t *ret, struct err *err);

/* The project id of data/ below `dir`; 0: none. */
must_check int quota_project_of(int dir, uint32_t *ret, struct err *err);

must_check int quota_make(const struct disk *d, struct err *err);
must_check int quota_attach(const struct disk *d, struct err *err);
must_check int quota_grow(const struct disk *d, struct err *err);
must_check int quota_unbacked(const struct disk *d, uint64_t *ret_bytes, struct err *err);
must_check int quota_release(const struct disk *d, struct err *err);
