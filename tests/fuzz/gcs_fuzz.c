/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "gcs/gcs.h"

/* Listed keys are greater than start_after. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct object_page page;
    struct err err;
    auto_sbuf token;
    sbuf_init(&token, 4096);
    object_page_init(&page);
    if (gcs_parse_list(fuzz_str(bytes, len), STR("b"), &page, &token, &err) < 0)
        assert(str_is_utf8(str_of(err.text)));
    else
        for (size_t i = 0; i < page.count; i++)
            assert(str_cmp(page.objects[i].key, STR("b")) > 0 || page.objects[i].generation == 0);
    object_page_done(&page);
    return 0;
}
