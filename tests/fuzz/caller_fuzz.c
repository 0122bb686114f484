/* SPDX-License-Identifier: Apache-2.0 */
/* A caller of the broker: a token of any bytes, and the reply of a TokenReview. A caller without a name is refused. */
#include "caller.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const struct caller_rules rules = {STR("cistern-system"), STR("cistern-node"), STR("cistern-job")};
    struct str text = fuzz_str(bytes, len);
    struct err err = {0};
    struct caller c;
    auto_json j = NULL;
    if (caller_looks_right(text, INT64_C(1800000000) * 1000000000, &err) < 0)
        assert(err.code == ERR_DENIED && err.id == 1902);
    if (json_parse(text, "it", &j, &err) < 0 || caller_read(j, &rules, &c, &err) < 0)
        return 0;
    assert(memmem(bytes, len, "system:serviceaccount:cistern-system:cistern-", 45) || memchr(bytes, '\\', len));
    assert(c.kind != CALLER_JOB || strcmp(c.user, "system:serviceaccount:cistern-system:cistern-job") == 0);
    return 0;
}
