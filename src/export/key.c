/* SPDX-License-Identifier: Apache-2.0 */
#include "key.h"

static int refuse(struct str path, const char *why, const char *way_out, struct err *err)
{
    err_set(err, ERR_INVALID, "'%.*s' cannot be an object: %s", STR_FMT(str_sub(path, 0, 300)), why);
    return err_advise(err, CIS_PATH_NOT_A_KEY, way_out);
}

int key_make(struct str prefix, struct str path, uint64_t size_bytes, unsigned version, struct sbuf *ret,
             struct err *err)
{
    if (!str_is_utf8(path)) {
        auto_sbuf shown = SBUF(4 * path.len);
        for (size_t i = 0; i < path.len; i++)
            sbuf_addf(&shown, (unsigned char)path.ptr[i] < 0x80 ? "%c" : "\\x%02x", (unsigned char)path.ptr[i]);
        return refuse(sbuf_str(&shown), "its name is not UTF-8", "rename", err);
    }
    if (size_bytes > KEY_OBJECT_BYTES_MAX)
        return refuse(path, "it is larger than 5 TiB", "split", err);
    sbuf_set(ret, prefix);
    if (prefix.len > 0 && prefix.ptr[prefix.len - 1] != '/')
        sbuf_addc(ret, '/');
    sbuf_add(ret, path);
    if (version > 1)
        sbuf_addf(ret, ".v%u", version);
    if (ret->overflow || ret->len > KEY_BYTES_MAX)
        return refuse(path, "its key would be longer than 1024 bytes", "rename", err);
    return 0;
}

uint64_t key_part_bytes(uint64_t size_bytes, unsigned parts_max)
{
    const uint64_t mib = 1 << 20;
    uint64_t least = (size_bytes + parts_max - 1) / parts_max;
    return max_u64(KEY_PART_BYTES, (least + mib - 1) / mib * mib);
}

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
