/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts ids by path in bounded memory. Each page of a listing is sorted, even if the pages are not: ids in
 * sequence are runs already, and are merged directly. If the pages are not sorted either, sorted runs are first
 * written to a nameless file. */
#include "format.h"
#include "util/file.h"
#include "util/heap.h"
#include <fcntl.h>

enum {
    RUN_IDS = 1 << 20,      /* 16 MiB of keys at a time */
    BUFFER_IDS = 1 << 12,   /* for each run while merging: 4,096 runs (the most that 2^32 ids can make) need 64 MiB */
    RELEASE_IDS = 1 << 18,  /* paths to read before the mapped memory is released: 25 MB */
    RELEASE_HEADS = 1 << 8, /* the same if the paths are far from each other: each one loads 64 KiB */
    NATURAL_MAX = 1 << 18 /* runs that were listed in order: 20 MiB to merge them; pages of 1,000 keys are 262 M keys */
};

struct key {
    const char *path;
    uint32_t len;
    uint32_t id;
};

struct sort_run {
    struct heap_node node;
    uint64_t next; /* ids: position in the file of runs; without a buffer: the ids themselves */
    uint64_t end;
    uint32_t *buffer; /* owned; NULL: the run came sorted */
    size_t buffered;
    size_t used;
    struct key head;
};

struct merge {
    const struct index *x;
    int fd;                /* of the runs */
    struct sort_run *runs; /* owned */
    size_t run_count;
    struct heap heap; /* of the runs that have a head; the one with the least path is first */

    int out;
    uint64_t out_offset;
    uint32_t *out_buffer; /* owned */
    size_t out_count;
    unsigned blocks; /* written */
    struct hash crc;
};

static int compare(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    return str_cmp((struct str){x->path, x->len}, (struct str){y->path, y->len});
}

static int key_of(const struct index *x, uint64_t id, struct key *ret, struct err *err)
{
    struct str path;
    int r = index_path(x, id, &path, err);
    if (r < 0)
        return r;
    *ret = (struct key){path.ptr, (uint32_t)path.len, (uint32_t)id};
    return 0;
}

static int write_runs(const struct index *x, uint64_t count, int fd, struct err *err)
{
    auto_mem struct key *keys = xcalloc(min_u64(count, RUN_IDS) + 1, sizeof *keys);
    auto_mem uint32_t *ids = xcalloc(min_u64(count, RUN_IDS) + 1, sizeof *ids);
    for (uint64_t from = 0; from < count; from += RUN_IDS) {
        size_t n = min_u64(RUN_IDS, count - from);
        bool sorted = true;
        for (size_t i = 0; i < n; i++) {
            int r = key_of(x, from + i, &keys[i], err);
            if (r < 0)
                return r;
            sorted &= i == 0 || compare(&keys[i - 1], &keys[i]) <= 0;
        }
        if (!sorted)
            qsort(keys, n, sizeof *keys, compare);
        for (size_t i = 0; i < n; i++)
            ids[i] = keys[i].id;
        int r = file_pwrite_all(fd, "the catalog's runs", ids, n * sizeof *ids, from * sizeof *ids, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Loads the next head; false at the run's end. */
static int run_advance(struct merge *m, struct sort_run *r, bool *ret_more, struct err *err)
{
    if (!r->buffer) {
        *ret_more = r->next < r->end;
        return *ret_more ? key_of(m->x, r->next++, &r->head, err) : 0;
    }
    if (r->used == r->buffered) {
        size_t n = min_u64(BUFFER_IDS, r->end - r->next);
        *ret_more = n > 0;
        if (n == 0)
            return 0;
        ssize_t got = pread(m->fd, r->buffer, n * sizeof *r->buffer, (off_t)(r->next * sizeof *r->buffer));
        if (got != (ssize_t)(n * sizeof *r->buffer))
            return err_sys(err, got < 0 ? errno : EIO, "cannot read the catalog's runs");
        r->next += n;
        r->buffered = n;
        r->used = 0;
    }
    *ret_more = true;
    return key_of(m->x, r->buffer[r->used++], &r->head, err);
}

static bool is_before(const struct heap_node *a, const struct heap_node *b)
{
    return compare(&container_of(a, struct sort_run, node)->head, &container_of(b, struct sort_run, node)->head) < 0;
}

static int out_flush(struct merge *m, struct err *err)
{
    size_t len = m->out_count * sizeof *m->out_buffer;
    hash_update(&m->crc, m->out_buffer, len);
    int r = file_pwrite_all(m->out, "the catalog's order", m->out_buffer, len, m->out_offset, err);
    m->out_offset += len;
    m->out_count = 0;
    if (++m->blocks % (RELEASE_IDS / BUFFER_IDS) == 0)
        index_release(m->x);
    return r;
}

/* The end of each run that was listed in order; stops at NATURAL_MAX. */
static int find_runs(struct merge *m, uint64_t count, struct err *err)
{
    struct key last = {0};
    size_t room = 0;
    for (uint64_t id = 0; id < count && m->run_count < NATURAL_MAX; id++) {
        struct key key;
        if (id % RELEASE_IDS == 0)
            index_release(m->x);
        int r = key_of(m->x, id, &key, err);
        if (r < 0)
            return r;
        if (id == 0 || compare(&last, &key) > 0) {
            if (m->run_count == room)
                m->runs = xrealloc(m->runs, room = 2 * room + 16, sizeof *m->runs);
            m->runs[m->run_count++] = (struct sort_run){.next = id};
        }
        m->runs[m->run_count - 1].end = id + 1;
        last = key;
    }
    return 0;
}

static int make_runs(struct merge *m, uint64_t count, struct err *err)
{
    int r = write_runs(m->x, count, m->fd, err);
    if (r < 0)
        return r;
    m->run_count = (count + RUN_IDS - 1) / RUN_IDS;
    m->runs = xrealloc(m->runs, m->run_count + 1, sizeof *m->runs);
    for (size_t i = 0; i < m->run_count; i++) {
        uint64_t next = (uint64_t)i * RUN_IDS;
        m->runs[i] = (struct sort_run){
            .next = next, .end = min_u64(count, next + RUN_IDS), .buffer = xcalloc(BUFFER_IDS, sizeof(uint32_t))};
    }
    return 0;
}

static int open_runs(struct merge *m, uint64_t count, struct err *err)
{
    int r = find_runs(m, count, err);
    if (r == 0 && m->run_count == NATURAL_MAX)
        r = make_runs(m, count, err);
    m->out_buffer = xcalloc(BUFFER_IDS, sizeof *m->out_buffer);
    for (size_t i = 0; r == 0 && i < m->run_count; i++) {
        bool more;
        if (i % RELEASE_HEADS == 0)
            index_release(m->x);
        r = run_advance(m, &m->runs[i], &more, err);
        if (r == 0)
            heap_add(&m->heap, &m->runs[i].node);
    }
    return r;
}

/* One prefix listed the path twice, or two prefixes map to one path. */
static int named_twice(const struct index *x, const struct key *first, uint64_t second, struct err *err)
{
    struct index_entry a, b;
    int r = index_get(x, first->id, &a, err);
    if (r == 0)
        r = index_get(x, second, &b, err);
    if (r < 0)
        return r;
    int len = (int)min_u64(first->len, 300);
    if (a.source == b.source)
        return err_fail(err, ERR_CORRUPT, CIS_KEY_LISTED_TWICE, "the listing names '%.*s' twice", len, first->path);
    return err_fail(err, ERR_INVALID, CIS_KEY_LISTED_TWICE, "two prefixes of the source map to '%.*s'", len,
                    first->path);
}

static int merge_runs(struct merge *m, struct err *err)
{
    struct key last = {0};
    struct sort_run *least;
    while ((least = heap_first(&m->heap, struct sort_run, node)) != NULL) {
        bool more;
        if (last.path && compare(&last, &least->head) == 0)
            return named_twice(m->x, &last, least->head.id, err);
        last = least->head;
        m->out_buffer[m->out_count++] = last.id;
        int r = m->out_count == BUFFER_IDS ? out_flush(m, err) : 0;
        if (r == 0)
            r = run_advance(m, least, &more, err);
        if (r < 0)
            return r;
        if (more)
            heap_update(&m->heap, &least->node);
        else
            heap_remove(&m->heap, &least->node);
    }
    return out_flush(m, err);
}

static void merge_done(struct merge *m)
{
    for (size_t i = 0; i < m->run_count; i++)
        free(m->runs[i].buffer);
    free(m->runs);
    heap_done(&m->heap);
    free(m->out_buffer);
    hash_done(&m->crc);
}

int index_sort(const struct index *x, uint64_t count, int fd, uint64_t offset, uint32_t *ret_crc, struct err *err)
{
    auto_fd runs = -1;
    int r = file_nameless(x->dir, &runs, err);
    if (r < 0)
        return r;
    auto_with(merge_done) struct merge m = {
        .x = x, .fd = runs, .heap.is_before = is_before, .out = fd, .out_offset = offset};
    hash_init(&m.crc);
    hash_begin(&m.crc, HASH_CRC32C);
    r = open_runs(&m, count, err);
    if (r == 0)
        r = merge_runs(&m, err);
    if (r < 0)
        return r;
    struct digest d;
    hash_end(&m.crc, &d);
    memcpy(ret_crc, d.bytes, sizeof *ret_crc);
    return 0;
}
