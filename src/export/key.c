/* SPDX-License-Identifier: Apache-2.0 */
#include "key.h"

static int refuse(struct str path, const char *why, const char *way_out, struct err *err)
{
    err_set(err, ERR_INVALID, "no bucket can hold '%.*s': %s", (int)min_u64(path.len, 300), path.ptr, why);
    return err_advise(err, 4007, "%s it, or leave it out with an exclude pattern", way_out);
}

int key_make(struct str prefix, struct str path, uint64_t size_bytes, unsigned version, struct sbuf *ret,
             struct err *err)
{
    if (!str_is_utf8(path)) {
        auto_sbuf shown;
        sbuf_init(&shown, 4 * path.len);
        for (size_t i = 0; i < path.len; i++)
            sbuf_addf(&shown, (unsigned char)path.ptr[i] < 0x80 ? "%c" : "\\x%02x", (unsigned char)path.ptr[i]);
        return refuse(sbuf_str(&shown), "its name is not UTF-8", "rename", err);
    }
    if (size_bytes > KEY_OBJECT_BYTES_MAX)
        return refuse(path, "it is longer than 5 TiB", "split", err);
    sbuf_clear(ret);
    sbuf_add(ret, prefix);
    if (prefix.len > 0 && prefix.ptr[prefix.len - 1] != '/')
        sbuf_addc(ret, '/');
    sbuf_add(ret, path);
    if (version > 1)
        sbuf_addf(ret, ".v%u", version);
    if (ret->overflow || ret->len > KEY_BYTES_MAX)
        return refuse(path, "its key would be longer than 1024 bytes", "rename", err);
    return 0;
}

uint64_t key_part_bytes(uint64_t size_bytes)
{
    const uint64_t mib = 1 << 20;
    uint64_t least = (size_bytes + KEY_PARTS_MAX - 1) / KEY_PARTS_MAX;
    return max_u64(KEY_PART_BYTES, (least + mib - 1) / mib * mib);
}
