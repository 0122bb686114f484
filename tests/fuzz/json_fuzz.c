/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "util/json.h"

/* Parsed JSON is written as text that parses to the same text. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct err err;
    auto_json j = NULL;
    if (json_parse(fuzz_str(bytes, len), "it", &j, &err) < 0) {
        assert(str_is_utf8(str_of(err.text)));
        return 0;
    }
    auto_mem char *text = json_text(j, 0);
    auto_json again = NULL;
    int r = json_parse(str_of(text), "its own text", &again, &err);
    assert(r == 0);
    auto_mem char *text_again = json_text(again, 0);
    assert(strcmp(text, text_again) == 0);
    return 0;
}
