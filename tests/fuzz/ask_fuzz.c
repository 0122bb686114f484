/* SPDX-License-Identifier: Apache-2.0 */
/* What anybody may send to the broker: the request, and the claims of a token before anybody vouched for it. */
#include "ask.h"
#include "caller.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct str text = fuzz_str(bytes, len);
    struct ask ask;
    struct err err;
    struct str token;
    if (ask_parse(text, &ask, &err) == 0)
        assert(ask.volume[0] != '\0');
    if (ask_token(text, &token, &err) == 0)
        assert(token.len > 0 && token.len < len);
    (void)!caller_looks_right(text, 0, &err);
    return 0;
}
