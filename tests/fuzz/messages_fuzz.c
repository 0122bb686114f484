/* SPDX-License-Identifier: Apache-2.0 */
/* Untrusted input of the broker: the request, and the claims of a token before the API server has verified it. */
#include "caller.h"
#include "fuzz.h"
#include "messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct str text = fuzz_str(bytes, len);
    struct credential_request request;
    struct err err;
    struct str token;
    if (credential_request_parse(text, &request, &err) == 0)
        assert(request.volume[0] != '\0');
    if (bearer_token_of(text, &token, &err) == 0)
        assert(token.len > 0 && token.len < len);
    (void)!caller_looks_right(text, 0, &err);
    return 0;
}
