/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "xml.h"

static bool same_object(const struct object *a, const struct object *b)
{
    return str_eq(a->key, b->key) && str_eq(a->etag, b->etag) && a->size_bytes == b->size_bytes &&
           a->mtime_ns == b->mtime_ns;
}

/* A parser that has read something reads an answer as a new one does. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct page first, second;
    struct err err;
    page_init(&first);
    page_init(&second);
    struct xml *x = xml_new(&first), *y = xml_new(&second);
    int a = xml_read(x, fuzz_str(bytes, len), &err);
    int b = xml_read(y, fuzz_str(bytes, len / 2), &err);
    b = xml_read(y, fuzz_str(bytes, len), &err);
    assert(a == b);
    if (a == 0) {
        assert(first.count == second.count);
        assert(str_eq(xml_answer(x)->code, xml_answer(y)->code));
        assert(str_eq(xml_answer(x)->next_token, xml_answer(y)->next_token));
        for (size_t i = 0; i < first.count; i++)
            assert(same_object(&first.objects[i], &second.objects[i]));
    }
    xml_free(x);
    xml_free(y);
    page_done(&first);
    page_done(&second);
    return 0;
}
