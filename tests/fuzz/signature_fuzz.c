/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "pool/signature.h"
#include <string.h>

static bool is_zero(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] != 0)
            return false;
    return true;
}

/* Any bytes have a kind. Blank means zero at both ends. The name of an array is printable. A sector size is one that
 * XFS has. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct str disk = fuzz_str(bytes, len);
    struct signature s;
    signature_read(STR_NULL, disk, &s);
    assert((s.kind == SIGNATURE_BLANK) == is_zero(disk));
    signature_read(disk, STR_NULL, &s);
    assert(s.what && (s.kind == SIGNATURE_BLANK) == is_zero(disk));
    for (const char *c = s.set_name; s.kind == SIGNATURE_MEMBER && *c; c++)
        assert(*c >= 0x20 && *c < 0x7f);
    assert(strnlen(s.set_name, sizeof s.set_name) < sizeof s.set_name);
    unsigned sector = signature_xfs_sector(disk);
    assert(sector == 0 || (sector >= 512 && sector <= 32768 && __builtin_popcount(sector) == 1));
    assert(sector == 0 || (s.kind == SIGNATURE_XFS || s.kind == SIGNATURE_MEMBER));
    return 0;
}
