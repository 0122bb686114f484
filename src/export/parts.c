/* SPDX-License-Identifier: Apache-2.0 */
#include "parts.h"

static bool are_alike(const struct logbook_part *parts, unsigned count)
{
    for (unsigned i = 1; i < count; i++)
        if (parts[i].digest.kind != parts[0].digest.kind)
            return false;
    return count > 0 && parts[0].digest.kind != HASH_NONE;
}

struct digest parts_join(const struct logbook_part *parts, unsigned count)
{
    if (count == 1)
        return parts[0].digest;
    if (!are_alike(parts, count) || !hash_combines(parts[0].digest.kind))
        return (struct digest){0};
    struct digest whole = parts[0].digest;
    for (unsigned i = 1; i < count; i++)
        digest_combine(&whole, &parts[i].digest, parts[i].size_bytes);
    return whole;
}

struct digest parts_composite(const struct logbook_part *parts, unsigned count)
{
    struct hash h;
    struct digest whole;
    if (!are_alike(parts, count))
        return (struct digest){0};
    hash_init(&h);
    hash_begin(&h, parts[0].digest.kind);
    for (unsigned i = 0; i < count; i++)
        hash_update(&h, parts[i].digest.bytes, hash_size(parts[i].digest.kind));
    hash_end(&h, &whole);
    hash_done(&h);
    return whole;
}
