/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/id.h"
#include "util/hash.h"
#include <stdio.h>
#include <sys/random.h>

enum { POOL_AT = 3, VOLUME_AT = POOL_AT + SPEC_UUID_LEN + 1 };

void spec_uuid_make(char ret[SPEC_UUID_LEN + 1])
{
    unsigned char bytes[SPEC_UUID_LEN / 2];
    /* The kernel returns up to 256 bytes whole and uninterrupted once it is seeded; without them ids would
     * collide. */
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        abort();
    hex_text(bytes, sizeof bytes, ret);
}

bool spec_uuid_is_valid(struct str s)
{
    return s.len == SPEC_UUID_LEN && str_is_of(s, CHARS_DIGITS "abcdef");
}

static void set(const char *pool_uuid, const char *own, struct volume_id *ret)
{
    snprintf(ret->text, sizeof ret->text, "v1-%.*s-%s", SPEC_UUID_LEN, pool_uuid, own);
}

void volume_id_make(const char *pool_uuid, struct volume_id *ret)
{
    char own[SPEC_UUID_LEN + 1];
    spec_uuid_make(own);
    set(pool_uuid, own, ret);
}

void volume_id_derive(const char *pool_uuid, struct str name, struct volume_id *ret)
{
    uint8_t digest[32];
    char own[SPEC_UUID_LEN + 1];
    sha256(name, digest);
    hex_text(digest, SPEC_UUID_LEN / 2, own);
    set(pool_uuid, own, ret);
}

bool volume_id_parse(struct str text, struct volume_id *ret)
{
    if (text.len != SPEC_ID_LEN || !str_starts(text, STR("v1-")) || text.ptr[VOLUME_AT - 1] != '-' ||
        !spec_uuid_is_valid(str_sub(text, POOL_AT, SPEC_UUID_LEN)) || !spec_uuid_is_valid(str_from(text, VOLUME_AT)))
        return false;
    memcpy(ret->text, text.ptr, SPEC_ID_LEN);
    ret->text[SPEC_ID_LEN] = '\0';
    return true;
}

struct str volume_id_pool(const struct volume_id *id)
{
    return str_sub(str_of(id->text), POOL_AT, SPEC_UUID_LEN);
}

bool volume_id_is_of_pool(const struct volume_id *id, const char *pool_uuid)
{
    return str_eq(volume_id_pool(id), str_of(pool_uuid));
}
