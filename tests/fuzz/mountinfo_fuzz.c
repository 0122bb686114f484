/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "pool/mount.h"

/* A line that is taken has every field, and an absolute target. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct mount m = {0};
    struct err err;
    if (mount_parse(fuzz_str(bytes, len), &m, &err) < 0) {
        assert(err.code == ERR_CORRUPT);
        return 0;
    }
    assert(m.target[0] == '/' && m.root && m.fs_type && m.source);
    mount_done(&m);
    return 0;
}
