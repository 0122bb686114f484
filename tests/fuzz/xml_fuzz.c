/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "s3/document.h"

static bool same_object(const struct store_object *a, const struct store_object *b)
{
    return str_eq(a->key, b->key) && str_eq(a->etag, b->etag) && a->size_bytes == b->size_bytes &&
           a->mtime_ns == b->mtime_ns;
}

/* A parser that has read something reads an answer as a new one does. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct object_page first, second;
    struct err err;
    object_page_init(&first);
    object_page_init(&second);
    struct s3_document *x = s3_document_new(&first), *y = s3_document_new(&second);
    int a = s3_document_read(x, fuzz_str(bytes, len), &err);
    int b = s3_document_read(y, fuzz_str(bytes, len / 2), &err);
    b = s3_document_read(y, fuzz_str(bytes, len), &err);
    assert(a == b);
    if (a == 0) {
        assert(first.count == second.count);
        assert(str_eq(s3_document_reply(x)->code, s3_document_reply(y)->code));
        assert(str_eq(s3_document_reply(x)->next_token, s3_document_reply(y)->next_token));
        for (size_t i = 0; i < first.count; i++)
            assert(same_object(&first.objects[i], &second.objects[i]));
    }
    s3_document_free(x);
    s3_document_free(y);
    object_page_done(&first);
    object_page_done(&second);
    return 0;
}
