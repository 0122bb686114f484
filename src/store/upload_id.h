/* SPDX-License-Identifier: Apache-2.0 */
/* upload_id.h - creates upload IDs if Cistern keeps the parts itself (gs://, file://). Pure except for randomness.
 * An ID is half of the key's hash, by which a sweep finds the parts, and a random half. */
#pragma once

#include "util/str.h"

enum { UPLOAD_ID_LEN = 32, UPLOAD_KEY_LEN = 16 };

void upload_id_make(struct str key, char ret[UPLOAD_ID_LEN + 1]);
void upload_id_of_key(struct str key, char ret[UPLOAD_KEY_LEN + 1]); /* the common start of all upload IDs of a key */
bool upload_id_is_valid(struct str id);
