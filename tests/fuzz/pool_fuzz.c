/* SPDX-License-Identifier: Apache-2.0 */
/* cistern.json, which names the pool of a directory. Any bytes are a record of this pool, or refused. */
#include "directory.h"
#include "fuzz.h"
#include "private.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const struct pool_options o = {.path = "/pool", .name = "default", .node = "node-1"};
    struct pool_identity i;
    struct err err = {0};
    fuzz_file(fuzz_folder(), "cistern.json", fuzz_str(bytes, len));
    if (identity_read(fuzz_folder(), &o, &i, &err) < 0) {
        assert(err.code != 0 && err.text[0]);
        return 0;
    }
    assert(strlen(i.uuid) == SPEC_UUID_LEN && (memmem(bytes, len, i.uuid, SPEC_UUID_LEN) || memchr(bytes, '\\', len)));
    return 0;
}
