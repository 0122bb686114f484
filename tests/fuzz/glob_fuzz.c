/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "util/glob.h"

/* The input is a pattern, a line feed, and a text. A malformed pattern matches nothing. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct err err;
    struct str rest = fuzz_str(bytes, len), pattern;
    if (!str_split(&rest, '\n', &pattern))
        return 0;
    bool good = glob_check(pattern, &err) == 0;
    bool matches = glob_match(pattern, rest);
    assert(good || !matches || memchr(pattern.ptr, '\0', pattern.len));
    return 0;
}
