/* SPDX-License-Identifier: Apache-2.0 */
/* A command line, its words between NULs: parsed or refused in a sentence, every word taken or left, in order. */
#include "cli/opt.h"
#include "fuzz.h"
#include <stdlib.h>

enum { WORDS_MAX = 64 };

static void check(char **words, int count)
{
    bool all = false, deep = true;
    const char *name = NULL;
    uint64_t number = 0, size = 0, wait_ns = 0;
    static struct opt_list list;
    struct err err = {0};
    list.count = 0;
    const struct opt table[] = {{"all", 'a', OPT_FLAG, &all, NULL, "everything"},
                                {"deep", 0, OPT_FLAG, &deep, NULL, "below too"},
                                {"name", 'n', OPT_TEXT, &name, "NAME", "of it"},
                                {"number", 0, OPT_U64, &number, "N", "of them"},
                                {"size", 's', OPT_BYTES, &size, "SIZE", "of each"},
                                {"wait", 'w', OPT_DURATION, &wait_ns, "TIME", "for it"},
                                {"include", 'i', OPT_LIST, &list, "GLOB", "only what matches"},
                                {0}};
    int left = count;
    if (opt_parse(table, NULL, false, &left, words, &err) < 0) {
        assert(err.code == ERR_INVALID && err.text[0] && str_is_utf8(str_of(err.text)));
        return;
    }
    assert(left >= 1 && left <= count && list.count <= OPT_LIST_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char program[] = "cistern", *words[WORDS_MAX + 2] = {program};
    int count = 1;
    char *text = calloc(len + 1, 1);
    memcpy(text, bytes, len);
    for (size_t at = 0; at < len && count <= WORDS_MAX; at += strlen(text + at) + 1)
        words[count++] = text + at;
    check(words, count);
    free(text);
    return 0;
}
