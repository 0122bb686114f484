/* SPDX-License-Identifier: Apache-2.0 */
/* The catalog, complete and partial: any bytes are read whole, or refused by name. The checksums are mended first, so
 * that what lies behind them is reached. */
#include "directory.h"
#include "format.h"
#include "fuzz.h"

static uint32_t crc(const void *bytes, size_t len)
{
    return crc32c_of(&(struct str){bytes, len}, 1);
}

/* Only where the offsets allow: the rest stays as wrong as it came. */
static void mend(uint8_t *bytes, size_t len)
{
    struct index_head *h = (void *)bytes;
    if (len < sizeof *h)
        return;
    h->crc = crc(h, offsetof(struct index_head, crc));
    for (size_t at = sizeof *h; at + sizeof(struct segment_head) <= len;) {
        struct segment_head *s = (void *)(bytes + at);
        uint64_t body = (uint64_t)s->count * sizeof(struct index_record) + s->heap_bytes;
        if (s->magic != SEGMENT_MAGIC || body > len - at - sizeof *s || body % 8)
            break;
        struct str pieces[] = {{(char *)s, offsetof(struct segment_head, crc)}, {(char *)(s + 1), body}};
        s->crc = crc32c_of(pieces, countof(pieces));
        at += sizeof *s + body;
    }
    if (len % 8 || len < sizeof *h + sizeof(struct index_foot))
        return;
    struct index_foot *f = (void *)(bytes + len - sizeof *f);
    uint64_t table = f->segment_count * sizeof(struct segment), order = f->count * f->order_width;
    if (f->segment_count < len && f->table_offset <= len && table <= len - f->table_offset)
        f->table_crc = __builtin_bswap32(crc(bytes + f->table_offset, table));
    if (f->count < len && f->order_width <= 8 && f->order_offset <= len && order <= len - f->order_offset)
        f->order_crc = __builtin_bswap32(crc(bytes + f->order_offset, order));
    f->crc = crc(f, offsetof(struct index_foot, crc));
}

static void read_all(const struct index *x)
{
    struct err err;
    struct index_entry e;
    uint64_t id;
    for (uint64_t i = 0; i < index_count(x) && i < 64; i++) {
        if (index_get(x, i, &e, &err) == 0 && index_is_complete(x))
            id = index_find(x, e.path, &id, &err) == 0 ? id : 0;
        if (index_is_complete(x) && index_at(x, i, &id, &err) == 0)
            assert(id < index_count(x));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct err err;
    uint8_t *copy = xcalloc(len + 8, 1);
    memcpy(copy, bytes, len);
    mend(copy, len);
    fuzz_file(fuzz_folder(), INDEX_FILE, fuzz_str(copy, len));
    fuzz_file(fuzz_folder(), INDEX_PARTIAL_FILE, fuzz_str(copy, len));
    struct index_source source = {{0}, STR_NULL};
    if (len >= sizeof(struct index_head))
        memcpy(source.digest, ((struct index_head *)(void *)copy)->source_digest, sizeof source.digest);
    for (int whole = 0; whole < 2; whole++) {
        struct index *x = NULL;
        if (index_open(fuzz_folder(), &source, whole, &x, &err) == 0)
            read_all(x);
        index_free(x);
    }
    struct index *x = NULL;
    if (index_resume(fuzz_folder(), &source, &x, &err) == 0)
        read_all(x);
    index_free(x);
    free(copy);
    return 0;
}
