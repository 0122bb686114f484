/* SPDX-License-Identifier: Apache-2.0 */
/* id.h - volume ids, `v1-<pool UUID>-<volume UUID>`, and the UUIDs in them. Pure. Text from outside is parsed once, by
 * volume_id_parse(); a struct volume_id is valid by its type. */
#pragma once

#include "util/str.h"

enum {
    SPEC_UUID_LEN = 12,                  /* hex digits */
    SPEC_ID_LEN = 2 * SPEC_UUID_LEN + 4, /* "v1-0123456789ab-0123456789ab" */
};

struct volume_id {
    char text[SPEC_ID_LEN + 1];
};

/* False if `text` is not a volume id: then *ret is untouched. */
must_check bool volume_id_parse(struct str text, struct volume_id *ret);
bool volume_id_is_of_pool(const struct volume_id *id, const char *pool_uuid);
struct str volume_id_pool(const struct volume_id *id); /* borrowed: the pool's UUID */

/* A new id in the pool `pool_uuid`. */
void volume_id_make(const char *pool_uuid, struct volume_id *ret);
/* The id of the volume `name` in the pool: a repeated request gets the same id. */
void volume_id_derive(const char *pool_uuid, struct str name, struct volume_id *ret);

/* SPEC_UUID_LEN random hex digits. */
void spec_uuid_make(char ret[SPEC_UUID_LEN + 1]);
bool spec_uuid_is_valid(struct str s);
