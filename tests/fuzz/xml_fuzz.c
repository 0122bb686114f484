/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "xml.h"

static int parse(struct str text, size_t piece, struct page *page, struct xml **ret)
{
    struct err err;
    struct xml *x = *ret = xml_new(page);
    int r = 0;
    for (size_t at = 0; at < text.len && r == 0; at += piece)
        r = xml_feed(x, text.ptr + at, min_u64(piece, text.len - at), &err);
    return r == 0 ? xml_end(x, &err) : r;
}

static bool same_object(const struct object *a, const struct object *b)
{
    return str_eq(a->key, b->key) && str_eq(a->etag, b->etag) && a->size_bytes == b->size_bytes &&
           a->mtime_ns == b->mtime_ns;
}

/* An answer says the same in one piece and byte for byte, when no object of it is whole and so all of them pass through
 * the parser. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct page whole, pieces;
    struct xml *x, *y;
    page_init(&whole);
    page_init(&pieces);
    int a = parse(fuzz_str(bytes, len), len ? len : 1, &whole, &x);
    int b = parse(fuzz_str(bytes, len), 1, &pieces, &y);
    assert((a == 0) == (b == 0));
    if (a == 0) {
        assert(whole.count == pieces.count);
        assert(str_eq(xml_answer(x)->code, xml_answer(y)->code));
        assert(str_eq(xml_answer(x)->next_token, xml_answer(y)->next_token));
        for (size_t i = 0; i < whole.count; i++)
            assert(same_object(&whole.objects[i], &pieces.objects[i]));
    }
    xml_free(x);
    xml_free(y);
    page_done(&whole);
    page_done(&pieces);
    return 0;
}
