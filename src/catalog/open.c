/* SPDX-License-Identifier: Apache-2.0 */
/* Opens an existing catalog: checks a complete file from its end, a partial one from its beginning. */
#include "format.h"
#include "util/file.h"
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* Segments that are checked before their memory is released: at most 1 MiB of names each. */
enum { RELEASE_SEGMENTS = 64 };

static int open_file(int dir, const char *name, int flags, struct index **ret, uint64_t *ret_size, struct err *err)
{
    auto_index x = NULL;
    struct stat st;
    int r = index_new(dir, &x, err);
    if (r < 0)
        return r;
    r = file_open_state(dir, name, flags, 0, &x->fd, err);
    if (r < 0)
        return r;
    if (fstat(x->fd, &st) != 0)
        return err_sys(err, errno, "cannot open '%s'", name);
    *ret_size = (uint64_t)st.st_size;
    *ret = take(&x);
    return 0;
}

static int check_head(struct index *x, uint64_t size, const struct index_source *source, struct err *err)
{
    struct index_head *h = &x->head;
    if (size < sizeof *h || pread(x->fd, h, sizeof *h, 0) != sizeof *h)
        return index_corrupt(x, size, "it ends within its head", err);
    if (memcmp(h->magic, INDEX_HEAD_MAGIC, sizeof h->magic) != 0)
        return index_corrupt(x, 0, "not a catalog", err);
    if (h->crc != crc32c_of(&(struct str){(const char *)h, offsetof(struct index_head, crc)}, 1))
        return index_corrupt(x, 0, "the head's checksum is wrong", err);
    if (h->version != INDEX_VERSION || h->record_bytes != sizeof(struct index_record) || h->text_len > INDEX_TEXT_MAX)
        return err_fail(err, ERR_UNSUPPORTED, CIS_CATALOG_VERSION,
                        "the catalog is of version %" PRIu32 ", this program reads version %d", h->version,
                        INDEX_VERSION);
    if (source && memcmp(h->source_digest, source->digest, sizeof h->source_digest) != 0)
        return err_fail(err, ERR_EXISTS, CIS_OTHER_RUN_UNFINISHED,
                        "the directory has an unfinished run of another source or selection: %.*s",
                        (int)min_u64(h->text_len, 300), h->text);
    return 0;
}

/* Reads the segment at `offset`. Returns 1 if it is complete, else 0 with the reason in *ret_why. */
static bool segment_is_whole(const struct index *x, uint64_t offset, uint64_t limit, uint64_t first_id,
                             struct segment_head *ret, const char **ret_why)
{
    const char *base = atomic_load(&x->map)->base;
    *ret_why = "a segment is cut off";
    if (limit - offset < sizeof *ret)
        return false;
    memcpy(ret, base + offset, sizeof *ret);
    *ret_why = "no segment begins here";
    if (ret->magic != SEGMENT_MAGIC || ret->count == 0 || ret->count > SEGMENT_RECORDS_MAX ||
        ret->heap_bytes > SEGMENT_HEAP_MAX || ret->heap_bytes % 8 != 0)
        return false;
    *ret_why = "a segment is out of its place";
    if (ret->first_id != first_id)
        return false;
    uint64_t body = (uint64_t)ret->count * sizeof(struct index_record) + ret->heap_bytes;
    *ret_why = "a segment is cut off";
    if (limit - offset - sizeof *ret < body)
        return false;
    struct str pieces[] = {{base + offset, offsetof(struct segment_head, crc)}, {base + offset + sizeof *ret, body}};
    *ret_why = "a segment's checksum is wrong";
    return ret->crc == crc32c_of(pieces, countof(pieces));
}

static uint64_t segment_end(uint64_t offset, const struct segment_head *h)
{
    return offset + sizeof *h + (uint64_t)h->count * sizeof(struct index_record) + h->heap_bytes;
}

static uint64_t segment_sum(const struct index *x, uint64_t offset, const struct segment_head *h)
{
    const struct index_record *r = (const void *)(atomic_load(&x->map)->base + offset + sizeof *h);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < h->count; i++)
        bytes += r[i].size_bytes;
    return bytes;
}

/* ---- a complete one ---------------------------------------------------------------------------------------------- */

static uint32_t crc_as_written(struct str s)
{
    return __builtin_bswap32(crc32c_of(&s, 1)); /* digests are big-endian */
}

static int check_foot(struct index *x, uint64_t size, struct index_foot *ret, struct err *err)
{
    const char *base = atomic_load(&x->map)->base;
    if (size < INDEX_HEAD_BYTES + sizeof *ret)
        return index_corrupt(x, size, "it is cut off", err);
    memcpy(ret, base + size - sizeof *ret, sizeof *ret);
    if (memcmp(ret->magic, INDEX_FOOT_MAGIC, sizeof ret->magic) != 0)
        return index_corrupt(x, size, "it is cut off: its end is missing", err);
    if (ret->crc != crc32c_of(&(struct str){(const char *)ret, offsetof(struct index_foot, crc)}, 1))
        return index_corrupt(x, size - sizeof *ret, "the end's checksum is wrong", err);
    uint64_t order_bytes = (ret->count * ret->order_width + 7) / 8 * 8;
    uint64_t table_bytes = ret->segment_count * sizeof(struct segment);
    bool fits = (ret->order_width == 0 || ret->order_width == sizeof(uint32_t)) && ret->count < UINT32_MAX &&
                ret->segment_count <= (uint64_t)TABLE_BLOCK * TABLE_BLOCKS && ret->order_offset >= INDEX_HEAD_BYTES &&
                ret->order_offset % 8 == 0 && ret->order_offset <= size &&
                ret->table_offset == ret->order_offset + order_bytes &&
                ret->table_offset + table_bytes + sizeof *ret == size;
    if (!fits)
        return index_corrupt(x, size - sizeof *ret, "its parts do not add up to its length", err);
    if (ret->table_crc != crc_as_written((struct str){base + ret->table_offset, table_bytes}))
        return index_corrupt(x, ret->table_offset, "the table's checksum is wrong", err);
    return 0;
}

static int load_table(struct index *x, const struct index_foot *foot, struct err *err)
{
    const struct segment *table = (const void *)(atomic_load(&x->map)->base + foot->table_offset);
    uint64_t id = 0, offset = INDEX_HEAD_BYTES;
    for (uint64_t i = 0; i < foot->segment_count; i++) {
        bool fits = table[i].offset >= offset && table[i].offset + sizeof(struct segment_head) <= foot->order_offset &&
                    (i == 0 ? table[i].first_id == 0 : table[i].first_id > id) && table[i].first_id < foot->count;
        if (!fits)
            return index_corrupt(x, foot->table_offset + i * sizeof *table, "a segment is out of its place", err);
        id = table[i].first_id;
        offset = table[i].offset + sizeof(struct segment_head);
        int r = index_table_add(x, table[i].offset, id, err);
        if (r < 0)
            return r;
    }
    return foot->count == 0 || foot->segment_count > 0 ? 0 : index_corrupt(x, 0, "it has objects but no segment", err);
}

static int check_order(const struct index *x, const struct index_foot *foot, struct err *err)
{
    const char *base = atomic_load(&x->map)->base;
    if (foot->order_width == 0)
        return 0;
    if (foot->order_crc != crc_as_written((struct str){base + foot->order_offset, foot->count * sizeof(uint32_t)}))
        return index_corrupt(x, foot->order_offset, "the order's checksum is wrong", err);
    return 0;
}

static int check_segments(const struct index *x, const struct index_foot *foot, struct err *err)
{
    uint64_t at = INDEX_HEAD_BYTES, id = 0, bytes = 0;
    for (uint64_t i = 0; i < foot->segment_count; i++) {
        struct segment_head h;
        const char *why;
        if (index_segment(x, i).offset != at)
            return index_corrupt(x, at, "a segment is out of its place", err);
        if (i % RELEASE_SEGMENTS == 0)
            index_release(x);
        if (!segment_is_whole(x, at, foot->order_offset, id, &h, &why))
            return index_corrupt(x, at, why, err);
        bytes += segment_sum(x, at, &h);
        at = segment_end(at, &h);
        id += h.count;
    }
    if (at != foot->order_offset || id != foot->count || bytes != foot->bytes)
        return index_corrupt(x, at, "its segments do not add up to its counts", err);
    return 0;
}

int index_open(int dir, const struct index_source *source, bool whole, struct index **ret, struct err *err)
{
    auto_index x = NULL;
    uint64_t size;
    struct index_foot foot;
    int r = open_file(dir, INDEX_FILE, O_RDONLY, &x, &size, err);
    if (r < 0)
        return r;
    x->complete = true;
    r = check_head(x, size, source, err);
    if (r == 0)
        r = index_map(x, size, err);
    if (r == 0)
        r = check_foot(x, size, &foot, err);
    if (r == 0)
        r = load_table(x, &foot, err);
    if (r == 0 && whole)
        r = check_segments(x, &foot, err);
    if (r == 0 && whole)
        r = check_order(x, &foot, err);
    if (r < 0)
        return r;
    x->end = foot.order_offset;
    if (foot.order_width)
        x->order = (const uint32_t *)(const void *)(atomic_load(&x->map)->base + foot.order_offset);
    atomic_store(&x->count, foot.count);
    atomic_store(&x->bytes, foot.bytes);
    *ret = take(&x);
    return 0;
}

/* ---- a partial one ----------------------------------------------------------------------------------------------- */

static int scan(struct index *x, uint64_t size, struct err *err)
{
    struct segment_head h;
    const char *why;
    x->end = INDEX_HEAD_BYTES;
    for (uint64_t id = 0; segment_is_whole(x, x->end, size, id, &h, &why); id += h.count) {
        int r = index_table_add(x, x->end, id, err);
        if (r < 0)
            return r;
        atomic_fetch_add(&x->bytes, segment_sum(x, x->end, &h));
        atomic_store(&x->count, id + h.count);
        x->end = segment_end(x->end, &h);
        if (h.flags & SEGMENT_ALL_BEFORE_LISTED) {
            r = index_path(x, id + h.count - 1, &x->resume_after, err);
            if (r < 0)
                return r;
        }
    }
    x->resumed_count = atomic_load(&x->count);
    return 0;
}

/* An anonymous file with the order by path: resumed entries are looked up during the new listing. */
static int order_resumed(struct index *x, struct err *err)
{
    uint32_t crc;
    auto_fd fd = -1;
    int r = file_nameless(x->dir, &fd, err);
    if (r < 0)
        return r;
    r = index_sort(x, x->resumed_count, fd, 0, &crc, err);
    if (r < 0)
        return r;
    x->order_map_len = x->resumed_count * sizeof(uint32_t);
    x->order_map = mmap(NULL, x->order_map_len, PROT_READ, MAP_SHARED, fd, 0);
    if (x->order_map == MAP_FAILED) {
        x->order_map = NULL;
        return err_sys(err, errno, "cannot map the order of the catalog");
    }
    x->order = x->order_map;
    x->order_count = x->resumed_count;
    /* New paths may fall between old ones: index_finish() sorts. */
    x->in_order = false;
    return 0;
}

static bool head_is_blank(const struct index *x)
{
    static const struct index_head blank;
    struct index_head head;
    return pread(x->fd, &head, sizeof head, 0) == sizeof head && memcmp(&head, &blank, sizeof head) == 0;
}

int index_resume(int dir, const struct index_source *source, struct index **ret, struct err *err)
{
    auto_index x = NULL;
    uint64_t size;
    int r = open_file(dir, INDEX_PARTIAL_FILE, O_RDWR, &x, &size, err);
    /* The process died before it wrote the head, or the disk lost the page: no barrier succeeded, or the head
     * would be there. */
    if (r == 0 && (size < INDEX_HEAD_BYTES || head_is_blank(x)))
        return err_set(err, ERR_NOT_FOUND, "'%s' holds nothing", INDEX_PARTIAL_FILE);
    if (r == 0)
        r = check_head(x, size, source, err);
    if (r == 0)
        r = index_map(x, size, err);
    if (r == 0)
        r = scan(x, size, err);
    if (r < 0)
        return r;
    /* A torn segment was never returned to a caller: its ids may be assigned again. */
    if (ftruncate(x->fd, (off_t)x->end) != 0)
        return err_sys(err, errno, "cannot cut '%s'", INDEX_PARTIAL_FILE);
    if (x->resumed_count > 0)
        r = order_resumed(x, err);
    if (r < 0)
        return r;
    index_make_buffers(x);
    *ret = take(&x);
    return 0;
}

struct str index_resume_after(const struct index *x)
{
    return x->resume_after;
}
