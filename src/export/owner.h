/* SPDX-License-Identifier: Apache-2.0 */
/* owner.h - Identifies the writer of an object: the name of a volume or directory, kept in the metadata of every
 * object that it exports. home: any; blocks. */
#pragma once

#include "util/err.h"

enum { OWNER_MAX = 33, OWNER_TEXT_MAX = 96 }; /* 32 hex digits and NUL; with the size and the idempotency token */

struct spec;

/* For a volume: derived from its id and creation time. It survives the loss of the export's state, and differs from
 * that of another volume of the same name. */
void owner_of_volume(const struct spec *s, char ret[OWNER_MAX]);

/* For a directory: random, made at its first export and kept in its state. If the state is lost, the directory
 * gets another identity. */
must_check int owner_of_state(int export_dir, char ret[OWNER_MAX], struct err *err);
