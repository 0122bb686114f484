/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "volume/signature.h"
#include <string.h>

/* Any bytes are something, and what an array is called is printable. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct signature s;
    signature_read(fuzz_str(bytes, len), STR_NULL, &s);
    assert(s.what);
    for (const char *c = s.set_name; s.kind == SIGNATURE_MEMBER && *c; c++)
        assert(*c >= 0x20 && *c < 0x7f);
    assert(strnlen(s.set_name, sizeof s.set_name) < sizeof s.set_name);
    return 0;
}
