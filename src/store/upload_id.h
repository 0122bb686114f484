/* SPDX-License-Identifier: Apache-2.0 */
/* upload_id.h - the id of an upload whose parts we keep ourselves (gs://, file://): half of the key's hash, by which a
 * sweep finds what is left of it, and a random half. Pure but for chance. */
#pragma once

#include "util/str.h"

enum { UPLOAD_ID_LEN = 32, UPLOAD_KEY_LEN = 16 };

void upload_id_make(struct str key, char ret[UPLOAD_ID_LEN + 1]);
void upload_id_of_key(struct str key, char ret[UPLOAD_KEY_LEN + 1]); /* what all ids of a key begin with */
bool upload_id_is_valid(struct str id);
