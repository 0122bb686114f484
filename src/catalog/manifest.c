/* SPDX-License-Identifier: Apache-2.0 */
#include "catalog/index.h"

enum { BATCH = 64 << 10, ENTRY_MAX = 2 * 65535 + 256, RELEASE_EVERY = 1 << 20 };

/* Lengths before texts, so that no two lists of entries are written alike. */
static void add_entry(struct sbuf *b, const struct index_entry *e)
{
    const uint64_t numbers[] = {e->path.len, e->etag.len, e->size_bytes, e->generation, e->digest.kind};
    sbuf_add(b, (struct str){(const char *)numbers, sizeof numbers});
    sbuf_add(b, e->path);
    sbuf_add(b, e->etag);
    sbuf_add(b, (struct str){(const char *)e->digest.bytes, hash_size((enum hash_kind)e->digest.kind)});
}

static int add_all(const struct index *x, struct hash *h, struct sbuf *b, struct err *err)
{
    uint64_t id, count = index_count(x);
    struct index_entry e;
    for (uint64_t i = 0; i < count; i++) {
        int r = index_at(x, i, &id, err);
        if (r == 0)
            r = index_get(x, id, &e, err);
        if (r < 0)
            return r;
        add_entry(b, &e);
        if (b->len >= BATCH) {
            hash_update(h, b->ptr, b->len);
            sbuf_clear(b);
        }
        if (i % RELEASE_EVERY == RELEASE_EVERY - 1)
            index_release(x);
    }
    hash_update(h, b->ptr, b->len);
    return 0;
}

int index_manifest(const struct index *x, struct digest *ret, struct err *err)
{
    struct hash h;
    auto_sbuf b = SBUF(BATCH + ENTRY_MAX);
    hash_init(&h);
    hash_begin(&h, HASH_SHA256);
    int r = add_all(x, &h, &b, err);
    if (r == 0)
        hash_end(&h, ret);
    hash_done(&h);
    return r;
}
