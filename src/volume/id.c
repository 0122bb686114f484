/* SPDX-License-Identifier: Apache-2.0 */
#include "util/hash.h"
#include "volume/spec.h"
#include <stdio.h>
#include <sys/random.h>

void spec_uuid_make(char ret[SPEC_UUID_LEN + 1])
{
    unsigned char bytes[SPEC_UUID_LEN / 2];
    /* Up to 256 bytes come whole and uninterrupted once the kernel is seeded; without them ids would collide. */
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        abort();
    hex_text(bytes, sizeof bytes, ret);
}

void spec_id_make(const char *pool_uuid, char ret[SPEC_ID_LEN + 1])
{
    char own[SPEC_UUID_LEN + 1];
    spec_uuid_make(own);
    snprintf(ret, SPEC_ID_LEN + 1, "v1-%.*s-%s", SPEC_UUID_LEN, pool_uuid, own);
}

void spec_id_derive(const char *pool_uuid, struct str name, char ret[SPEC_ID_LEN + 1])
{
    uint8_t digest[32];
    sha256(name, digest);
    int n = snprintf(ret, SPEC_ID_LEN + 1, "v1-%.*s-", SPEC_UUID_LEN, pool_uuid);
    hex_text(digest, SPEC_UUID_LEN / 2, ret + n);
}

bool spec_uuid_is_valid(struct str s)
{
    if (s.len != SPEC_UUID_LEN)
        return false;
    for (size_t i = 0; i < s.len; i++)
        if (!(s.ptr[i] >= '0' && s.ptr[i] <= '9') && !(s.ptr[i] >= 'a' && s.ptr[i] <= 'f'))
            return false;
    return true;
}

bool spec_id_is_valid(struct str id)
{
    return id.len == SPEC_ID_LEN && str_starts(id, STR("v1-")) && spec_uuid_is_valid(str_sub(id, 3, SPEC_UUID_LEN)) &&
           id.ptr[3 + SPEC_UUID_LEN] == '-' && spec_uuid_is_valid(str_from(id, 4 + SPEC_UUID_LEN));
}

bool spec_id_is_of_pool(struct str id, const char *pool_uuid)
{
    return spec_id_is_valid(id) && str_eq(str_sub(id, 3, SPEC_UUID_LEN), str_of(pool_uuid));
}
