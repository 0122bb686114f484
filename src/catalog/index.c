/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the catalog: the mapping, records by id, paths in order. */
#include "format.h"
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { RELEASE_MIN = 16 << 20 }; /* releasing fewer bytes costs more in page faults than it saves */

uint32_t crc32c_of(const struct str *pieces, size_t count)
{
    struct hash h;
    struct digest d;
    hash_init(&h);
    hash_begin(&h, HASH_CRC32C);
    for (size_t i = 0; i < count; i++)
        hash_update(&h, pieces[i].ptr, pieces[i].len);
    hash_end(&h, &d);
    hash_done(&h);
    return (uint32_t)digest_crc(&d);
}

int index_corrupt(const struct index *x, uint64_t offset, const char *why, struct err *err)
{
    return err_fail(err, ERR_CORRUPT, CIS_CATALOG_CORRUPT, "'%s' is damaged at byte %" PRIu64 ": %s",
                    x->complete ? INDEX_FILE : INDEX_PARTIAL_FILE, offset, why);
}

int index_new(int dir, struct index **ret, struct err *err)
{
    auto_index x = xcalloc(1, sizeof *x);
    x->dir = x->fd = -1;
    x->in_order = true;
    x->dir = fcntl(dir, F_DUPFD_CLOEXEC, 3);
    if (x->dir < 0)
        return err_sys(err, errno, "cannot keep the catalog's directory open");
    *ret = take(&x);
    return 0;
}

void index_make_buffers(struct index *x)
{
    x->records = xcalloc(SEGMENT_RECORDS_MAX, sizeof *x->records);
    x->heap = xcalloc(SEGMENT_HEAP_MAX, 1);
}

void index_free(struct index *x)
{
    if (!x)
        return;
    for (struct mapping *m = atomic_load(&x->map), *older; m; m = older) {
        older = m->older;
        munmap((void *)(uintptr_t)m->base, m->len);
        free(m);
    }
    for (size_t i = 0; i < TABLE_BLOCKS && x->table[i]; i++)
        free(x->table[i]);
    if (x->order_map)
        munmap(x->order_map, x->order_map_len);
    free(x->records);
    free(x->heap);
    fd_close(&x->fd);
    fd_close(&x->dir);
    free(x);
}

int index_map(struct index *x, uint64_t end, struct err *err)
{
    struct mapping *now = atomic_load(&x->map);
    if (now && now->len >= end)
        return 0;
    /* Maps twice the needed size: pages beyond the end of the file may be mapped, and become readable as it grows. */
    size_t len = x->complete ? end : max_u64(2 * end, UINT64_C(16) << 20);
    void *base = mmap(NULL, len, PROT_READ, MAP_SHARED, x->fd, 0);
    if (base == MAP_FAILED)
        return err_sys(err, errno, "cannot map the catalog");
    struct mapping *m = xcalloc(1, sizeof *m);
    *m = (struct mapping){.base = base, .len = len, .older = now};
    atomic_store(&x->map, m);
    return 0;
}

int index_table_add(struct index *x, uint64_t offset, uint64_t first_id, struct err *err)
{
    uint64_t n = atomic_load(&x->segment_count);
    if (n == (uint64_t)TABLE_BLOCK * TABLE_BLOCKS)
        return err_set(err, ERR_NO_SPACE, "the catalog has more than %d segments", TABLE_BLOCK * TABLE_BLOCKS);
    struct segment **block = &x->table[n / TABLE_BLOCK];
    if (!*block)
        *block = xcalloc(TABLE_BLOCK, sizeof **block);
    (*block)[n % TABLE_BLOCK] = (struct segment){offset, first_id};
    atomic_store(&x->segment_count, n + 1);
    return 0;
}

struct segment index_segment(const struct index *x, uint64_t number)
{
    return x->table[number / TABLE_BLOCK][number % TABLE_BLOCK];
}

/* Most segments are a full page of a listing. So the search begins where the segment would be if all had the same
 * number of objects, and widens from there: a binary search of the whole table took most of the time of a walk. */
static struct segment segment_of(const struct index *x, uint64_t id)
{
    const uint64_t count = atomic_load(&x->segment_count);
    uint64_t low = id * count / atomic_load(&x->count), high = low + 1;
    for (uint64_t step = 1; low > 0 && index_segment(x, low).first_id > id; step *= 2) {
        high = low;
        low -= min_u64(step, low);
    }
    for (uint64_t step = 1; high < count && index_segment(x, high).first_id <= id; step *= 2) {
        low = high;
        high = min_u64(high + step, count);
    }
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (index_segment(x, mid).first_id <= id)
            low = mid;
        else
            high = mid;
    }
    return index_segment(x, low);
}

void index_release(const struct index *x)
{
    /* The mapping is read-only: dropping its pages loses nothing. */
    for (const struct mapping *m = atomic_load(&x->map); m; m = m->older)
        if (m->len >= RELEASE_MIN)
            (void)madvise((void *)(uintptr_t)m->base, m->len, MADV_DONTNEED);
}

/* Finds the record of an id and its heap; both are within the mapping, even if the file is damaged. */
static int locate(const struct index *x, uint64_t id, const struct index_record **ret, struct str *ret_heap,
                  struct err *err)
{
    if (id >= atomic_load(&x->count))
        return err_set(err, ERR_INTERNAL, "the catalog has no object %" PRIu64, id);
    struct segment s = segment_of(x, id);
    const struct mapping *m = atomic_load(&x->map);
    struct segment_head head;
    if (s.offset + sizeof head > m->len)
        return index_corrupt(x, s.offset, "a segment lies behind the end", err);
    memcpy(&head, m->base + s.offset, sizeof head);
    uint64_t records = s.offset + sizeof head, heap = records + (uint64_t)head.count * sizeof(struct index_record);
    if (id - s.first_id >= head.count || head.count > SEGMENT_RECORDS_MAX || heap + head.heap_bytes > m->len)
        return index_corrupt(x, s.offset, "a segment is longer than the file", err);
    *ret = (const struct index_record *)(const void *)(m->base + records) + (id - s.first_id);
    *ret_heap = (struct str){m->base + heap, head.heap_bytes};
    return 0;
}

/* Finds the record of an id, and its texts in the heap (path, etag, digest), by the lengths in the record. */
static int find_record(const struct index *x, uint64_t id, const struct index_record **ret, struct str *ret_words,
                       struct err *err)
{
    const struct index_record *r = NULL;
    struct str heap = STR_NULL;
    int e = locate(x, id, &r, &heap, err);
    if (e < 0)
        return e;
    uint64_t end = (uint64_t)r->heap_offset + r->path_len + r->etag_len + hash_size(r->digest_kind);
    if (r->digest_kind > HASH_SHA256 || end > heap.len)
        return index_corrupt(x, (uint64_t)((const char *)r - atomic_load(&x->map)->base),
                             "a record points outside of its segment", err);
    *ret = r;
    *ret_words = str_from(heap, r->heap_offset);
    return 0;
}

int index_path(const struct index *x, uint64_t id, struct str *ret, struct err *err)
{
    const struct index_record *r;
    struct str words;
    int e = find_record(x, id, &r, &words, err);
    if (e == 0)
        *ret = str_sub(words, 0, r->path_len);
    return e;
}

int index_get(const struct index *x, uint64_t id, struct index_entry *ret, struct err *err)
{
    const struct index_record *r;
    struct str words;
    int e = find_record(x, id, &r, &words, err);
    if (e < 0)
        return e;
    *ret = (struct index_entry){.path = str_sub(words, 0, r->path_len),
                                .size_bytes = r->size_bytes,
                                .mtime_ns = r->mtime_ns,
                                .generation = r->generation,
                                .etag = str_sub(words, r->path_len, r->etag_len),
                                .digest = {.kind = r->digest_kind},
                                .rank = r->rank,
                                .source = r->source};
    memcpy(ret->digest.bytes, words.ptr + r->path_len + r->etag_len, hash_size(r->digest_kind));
    return 0;
}

bool index_is_complete(const struct index *x)
{
    return x->complete;
}

uint64_t index_count(const struct index *x)
{
    return atomic_load(&x->count);
}

uint64_t index_bytes(const struct index *x)
{
    return atomic_load(&x->bytes);
}

const uint8_t *index_uid(const struct index *x)
{
    return x->head.uid;
}

/* Count of the ids that are sorted by path: all of a complete catalog, else the resumed ones. */
static uint64_t ordered_count(const struct index *x)
{
    return x->complete ? index_count(x) : x->order_count;
}

int index_at(const struct index *x, uint64_t position, uint64_t *ret_id, struct err *err)
{
    uint64_t count = ordered_count(x);
    uint64_t id = x->order && position < count ? x->order[position] : position;
    if (position >= count || id >= index_count(x))
        return index_corrupt(x, position, "the order names an object that the catalog lacks", err);
    *ret_id = id;
    return 0;
}

int index_lower_bound(const struct index *x, struct str path, uint64_t *ret_position, struct err *err)
{
    uint64_t low = 0, high = ordered_count(x);
    while (low < high) {
        uint64_t mid = low + (high - low) / 2, id;
        struct str at;
        int r = index_at(x, mid, &id, err);
        if (r == 0)
            r = index_path(x, id, &at, err);
        if (r < 0)
            return r;
        if (str_cmp(at, path) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    *ret_position = low;
    return 0;
}

int index_has_prefix(const struct index *x, struct str prefix, bool *ret, struct err *err)
{
    uint64_t at, id;
    struct index_entry e = {0};
    int r = index_lower_bound(x, prefix, &at, err);
    bool has_entry = r == 0 && at < index_count(x);
    if (has_entry)
        r = index_at(x, at, &id, err);
    if (has_entry && r == 0)
        r = index_get(x, id, &e, err);
    if (r == 0)
        *ret = has_entry && str_starts(e.path, prefix);
    return r;
}

int index_find(const struct index *x, struct str path, uint64_t *ret_id, struct err *err)
{
    uint64_t position, id;
    struct str at = STR_NULL;
    int r = index_lower_bound(x, path, &position, err);
    if (r < 0)
        return r;
    if (position < ordered_count(x)) {
        r = index_at(x, position, &id, err);
        if (r == 0)
            r = index_path(x, id, &at, err);
        if (r < 0)
            return r;
        if (str_eq(at, path)) {
            *ret_id = id;
            return 0;
        }
    }
    return err_set(err, ERR_NOT_FOUND, "'%.*s' is not in the catalog", (int)min_u64(path.len, 200),
                   path.ptr ? path.ptr : "");
}
