/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "spec/spec.h"

/* volume.json: what was read is written as a text that reads to the same volume. */
static void check_file(struct str text)
{
    struct err err;
    auto_spec s = NULL;
    if (spec_from_json(text, "volume.json", &s, &err) < 0) {
        assert(err.code == ERR_CORRUPT || err.code == ERR_UNSUPPORTED);
        return;
    }
    auto_mem char *written = spec_to_json(s);
    auto_spec again = NULL;
    int r = spec_from_json(str_of(written), "its own text", &again, &err);
    assert(r == 0);
    assert(spec_difference(s, again) == NULL);
    auto_mem char *written_again = spec_to_json(again);
    assert(strcmp(written, written_again) == 0);
}

/* A string map: lines of key=value. A refused pair changes nothing. */
static void check_map(struct str text)
{
    struct err err;
    struct str line;
    auto_spec s = spec_new();
    while (str_split(&text, '\n', &line)) {
        ssize_t equals = str_find(line, '=');
        if (equals < 0)
            continue;
        struct str key = str_sub(line, 0, (size_t)equals), value = str_from(line, (size_t)equals + 1);
        if (spec_set(s, key, value, &err) < 0)
            assert(err.id >= 2001 && err.id <= 2003);
    }
    (void)!spec_check(s, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    check_file(fuzz_str(bytes, len));
    check_map(fuzz_str(bytes, len));
    return 0;
}
