/* SPDX-License-Identifier: Apache-2.0 */
/* Where a store sends us: nowhere, or to a host whose name ends as the provider's does, by the same scheme and port. */
#include "fuzz.h"
#include "s3/redirect.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct endpoint from, to;
    struct err err = {0};
    struct redirect r;
    int e = endpoint_parse(STR("https://s3.us-east-1.amazonaws.com"), &from, &err);
    assert(e == 0);
    if (!redirect_read(fuzz_str(bytes, len), &from, STR("us-east-1"), STR("bucket"), &r))
        return 0;
    e = endpoint_parse(str_of(r.endpoint), &to, &err);
    assert(e == 0 && to.tls && str_starts(to.host, STR("s3")) && str_ends(to.host, STR(".amazonaws.com")));
    assert(str_eq(to.authority, to.host) && to.path.len == 0);
    for (const char *c = r.region; *c; c++)
        assert((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '-');
    return 0;
}
