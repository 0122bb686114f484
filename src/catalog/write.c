/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the catalog: segments during the listing, the rest when it is complete. */
#include "format.h"
#include "util/file.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/uio.h>

int index_create(int dir, const struct index_source *source, struct index **ret, struct err *err)
{
    auto_index x = NULL;
    int r = index_new(dir, &x, err);
    if (r < 0)
        return r;
    r = file_open_state(dir, INDEX_PARTIAL_FILE, O_RDWR | O_CREAT | O_TRUNC, 0600, &x->fd, err);
    if (r < 0)
        return r;
    struct index_head *h = &x->head;
    *h = (struct index_head){.version = INDEX_VERSION, .record_bytes = sizeof(struct index_record)};
    memcpy(h->magic, INDEX_HEAD_MAGIC, sizeof h->magic);
    memcpy(h->source_digest, source->digest, sizeof h->source_digest);
    h->text_len = (uint32_t)min_u64(source->text.len, INDEX_TEXT_MAX);
    if (h->text_len)
        memcpy(h->text, source->text.ptr, h->text_len);
    if (getrandom(h->uid, sizeof h->uid, 0) != sizeof h->uid)
        return err_sys(err, errno, "cannot rename the catalog");
    h->crc = crc32c_of(&(struct str){(const char *)h, offsetof(struct index_head, crc)}, 1);
    r = file_pwrite_all(x->fd, INDEX_PARTIAL_FILE, h, sizeof *h, 0, err);
    if (r == 0)
        r = index_map(x, sizeof *h, err);
    if (r < 0)
        return r;
    x->end = sizeof *h;
    index_make_buffers(x);
    *ret = take(&x);
    return 0;
}

static int write_segment(struct index *x, const struct segment_head *head, struct err *err)
{
    struct iovec v[] = {{(void *)(uintptr_t)head, sizeof *head},
                        {x->records, (size_t)head->count * sizeof *x->records},
                        {x->heap, head->heap_bytes}};
    size_t total = v[0].iov_len + v[1].iov_len + v[2].iov_len;
    ssize_t n;
    do
        n = pwritev(x->fd, v, 3, (off_t)x->end);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_sys(err, errno, "cannot write '%s'", INDEX_PARTIAL_FILE);
    if ((size_t)n != total)
        return err_sys(err, ENOSPC, "cannot write '%s'", INDEX_PARTIAL_FILE);
    return 0;
}

int index_flush(struct index *x, bool all_before_listed, struct err *err)
{
    if (x->record_count == 0)
        return 0;
    uint64_t first_id = atomic_load(&x->count), bytes = 0;
    while (x->heap_bytes % 8)
        x->heap[x->heap_bytes++] = 0;
    struct segment_head head = {.magic = SEGMENT_MAGIC,
                                .count = x->record_count,
                                .heap_bytes = x->heap_bytes,
                                .flags = all_before_listed ? SEGMENT_ALL_BEFORE_LISTED : 0,
                                .first_id = first_id};
    struct str pieces[] = {{(const char *)&head, offsetof(struct segment_head, crc)},
                           {(const char *)x->records, (size_t)head.count * sizeof *x->records},
                           {x->heap, head.heap_bytes}};
    head.crc = crc32c_of(pieces, countof(pieces));
    int r = write_segment(x, &head, err);
    uint64_t offset = x->end, end = offset + sizeof head + pieces[1].len + pieces[2].len;
    if (r == 0)
        r = index_map(x, end, err);
    if (r == 0)
        r = index_table_add(x, offset, first_id, err);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < head.count; i++)
        bytes += x->records[i].size_bytes;
    x->end = end;
    const struct index_record *last = &x->records[head.count - 1];
    if (x->in_order)
        x->last_path =
            (struct str){atomic_load(&x->map)->base + end - head.heap_bytes + last->heap_offset, last->path_len};
    x->record_count = x->heap_bytes = 0;
    atomic_fetch_add(&x->bytes, bytes);
    /* The count is set last: a reader that sees it may read every record. */
    atomic_store(&x->count, first_id + head.count);
    return 0;
}

static bool pinned_before(const struct index *x, struct str path, struct err *err)
{
    uint64_t id;
    return x->resumed_count > 0 && (str_cmp(path, x->resume_after) <= 0 || index_find(x, path, &id, err) == 0);
}

static void note_order(struct index *x, struct str path)
{
    if (x->record_count > 0) {
        const struct index_record *r = &x->records[x->record_count - 1];
        x->in_order &= str_cmp((struct str){x->heap + r->heap_offset, r->path_len}, path) < 0;
    } else if (atomic_load(&x->count) > 0) {
        x->in_order &= str_cmp(x->last_path, path) < 0;
    }
}

int index_add(struct index *x, const struct index_entry *e, bool *ret_new, struct err *err)
{
    size_t digest_len = hash_size(e->digest.kind);
    size_t need = e->path.len + e->etag.len + digest_len;
    if (e->path.len > UINT16_MAX || e->etag.len > UINT16_MAX)
        return err_fail(err, ERR_CORRUPT, CIS_REPLY_INVALID, "the listing's entry '%.*s...' is longer than 65535 bytes",
                        100, e->path.ptr);
    if (pinned_before(x, e->path, err)) {
        *ret_new = false;
        return 0;
    }
    if (x->record_count == SEGMENT_RECORDS_MAX || x->heap_bytes + need + 8 > SEGMENT_HEAP_MAX) {
        int r = index_flush(x, false, err);
        if (r < 0)
            return r;
    }
    if (atomic_load(&x->count) + x->record_count >= UINT32_MAX)
        return err_set(err, ERR_NO_SPACE, "the source holds more than 4294967294 objects");
    note_order(x, e->path);
    char *p = x->heap + x->heap_bytes;
    x->records[x->record_count++] = (struct index_record){.size_bytes = e->size_bytes,
                                                          .mtime_ns = e->mtime_ns,
                                                          .generation = e->generation,
                                                          .heap_offset = x->heap_bytes,
                                                          .path_len = (uint16_t)e->path.len,
                                                          .etag_len = (uint16_t)e->etag.len,
                                                          .digest_kind = e->digest.kind,
                                                          .rank = e->rank,
                                                          .source = e->source};
    if (e->path.len)
        memcpy(p, e->path.ptr, e->path.len);
    if (e->etag.len)
        memcpy(p + e->path.len, e->etag.ptr, e->etag.len);
    memcpy(p + e->path.len + e->etag.len, e->digest.bytes, digest_len);
    x->heap_bytes += (uint32_t)need;
    *ret_new = true;
    return 0;
}

int index_sync(struct index *x, struct err *err)
{
    return fdatasync(x->fd) == 0 ? 0 : err_sys(err, errno, "cannot make the catalog durable");
}

/* The table is written in blocks: it grows with the number of pages of the listing. */
static int write_table(struct index *x, struct index_foot *foot, uint64_t *at, struct err *err)
{
    struct hash table_hash;
    struct digest d;
    int r = 0;
    uint64_t n = foot->segment_count = atomic_load(&x->segment_count);
    hash_init(&table_hash);
    hash_begin(&table_hash, HASH_CRC32C);
    for (uint64_t i = 0; i < n && r == 0; i += TABLE_BLOCK) {
        size_t len = min_u64(TABLE_BLOCK, n - i) * sizeof(struct segment);
        hash_update(&table_hash, x->table[i / TABLE_BLOCK], len);
        r = file_pwrite_all(x->fd, INDEX_PARTIAL_FILE, x->table[i / TABLE_BLOCK], len, *at, err);
        *at += len;
    }
    hash_end(&table_hash, &d);
    memcpy(&foot->table_crc, d.bytes, sizeof foot->table_crc);
    return r;
}

static int write_end(struct index *x, struct err *err)
{
    struct index_foot foot = {.count = atomic_load(&x->count), .bytes = atomic_load(&x->bytes), .order_offset = x->end};
    uint64_t at = x->end;
    int r = 0;
    memcpy(foot.magic, INDEX_FOOT_MAGIC, sizeof foot.magic);
    if (!x->in_order) {
        foot.order_width = sizeof(uint32_t);
        r = index_sort(x, foot.count, x->fd, at, &foot.order_crc, err);
        at += (foot.count * sizeof(uint32_t) + 7) / 8 * 8;
    }
    foot.table_offset = at;
    if (r == 0)
        r = write_table(x, &foot, &at, err);
    foot.crc = crc32c_of(&(struct str){(const char *)&foot, offsetof(struct index_foot, crc)}, 1);
    if (r == 0)
        r = file_pwrite_all(x->fd, INDEX_PARTIAL_FILE, &foot, sizeof foot, at, err);
    if (r == 0 && ftruncate(x->fd, (off_t)(at + sizeof foot)) != 0)
        r = err_sys(err, errno, "cannot cut '%s'", INDEX_PARTIAL_FILE);
    if (r == 0)
        r = index_map(x, at + sizeof foot, err);
    if (r == 0 && foot.order_width)
        x->order = (const uint32_t *)(const void *)(atomic_load(&x->map)->base + foot.order_offset);
    return r;
}

int index_finish(struct index *x, struct err *err)
{
    int r = index_flush(x, false, err);
    if (r == 0)
        r = write_end(x, err);
    if (r == 0)
        r = index_sync(x, err);
    if (r < 0)
        return r;
    /* Synced before the rename: a file named 'catalog' is always complete. */
    if (renameat(x->dir, INDEX_PARTIAL_FILE, x->dir, INDEX_FILE) != 0)
        return err_sys(err, errno, "cannot name '%s'", INDEX_FILE);
    r = dir_sync(x->dir, "the catalog's directory", err);
    if (r < 0)
        return r;
    x->complete = true;
    return 0;
}
