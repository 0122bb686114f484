/* SPDX-License-Identifier: Apache-2.0 */
/* Keys, a line each: the first two bound a range, the others were seen in it. A cut lies inside the range, and is text
 * where they are. */
#include "fuzz.h"
#include "keyspace.h"

static void check(struct str after, struct str end, const struct sbuf *b, bool is_text)
{
    assert(b->overflow || str_cmp(after, sbuf_str(b)) < 0);
    assert(b->overflow || end.len == 0 || str_cmp(sbuf_str(b), end) < 0);
    assert(b->overflow || !is_text || str_is_utf8(sbuf_str(b)));
}

static void cut(const struct keyspace *k, struct str after, struct str end, enum keyspace_trust trust, bool is_text)
{
    auto_sbuf b;
    sbuf_init(&b, 8192);
    if (!keyspace_split(k, after, end, trust, &b))
        return;
    check(after, end, &b, is_text);
}

static void cut_ahead(const struct keyspace *k, struct str after, struct str end, struct str last, bool is_text)
{
    auto_sbuf b;
    sbuf_init(&b, 8192);
    for (double pages = 0.5; pages < 1e6; pages *= 7)
        if (keyspace_ahead(k, after, last, last, end, pages, &b))
            check(last, end, &b, is_text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct str rest = fuzz_str(bytes, len), after = STR_NULL, end = STR_NULL, key;
    struct keyspace k;
    bool is_text = str_is_utf8(rest);
    str_split(&rest, '\n', &after);
    str_split(&rest, '\n', &end);
    if (end.len > 0 && str_cmp(after, end) >= 0)
        return 0;
    struct str both = str_sub(after, 0, 3); /* a prefix that all of a listing have */
    if (end.len > 0 && !str_starts(end, both))
        both.len = 0;
    k = (struct keyspace){.prefix_len = both.len};
    struct str last = after;
    while (str_split(&rest, '\n', &key))
        if (str_starts(key, both)) {
            keyspace_see(&k, key);
            last = key;
        }
    cut_ahead(&k, after, end, last, is_text);
    cut(&k, after, end, KEYSPACE_SEEN, is_text);
    cut(&k, after, end, KEYSPACE_GUESS, is_text);
    double pages = keyspace_pages(&k, after, end, after, end);
    assert(!(pages < 0));
    return 0;
}
