/* SPDX-License-Identifier: Apache-2.0 */
/* format.h - defines the catalog's file: little-endian, every structure aligned to 8 bytes:
 *
 *   head     4096 bytes
 *   segment  head, records, heap; one for each page of the listing
 *   order    ids in order of paths, 4 bytes each; omitted if they arrived in that order
 *   table    the offset of each segment
 *   foot     the last 96 bytes: counts, offsets, checksums
 * A partial file ends after any segment. Private to this room.
 * Code: index.c and sort.c. */
#pragma once

#include "catalog/index.h"
#include <assert.h>
#include <stdatomic.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the catalog is mapped without byte swapping");

enum { INDEX_VERSION = 1, INDEX_HEAD_BYTES = 4096, INDEX_TEXT_MAX = 1024 };
enum { SEGMENT_RECORDS_MAX = 4096, SEGMENT_HEAP_MAX = 1 << 20 };
#define INDEX_HEAD_MAGIC "CISTCAT\n"
#define INDEX_FOOT_MAGIC "CISTEND\n"
#define SEGMENT_MAGIC UINT32_C(0x47455343) /* "CSEG" */

struct index_head {
    char magic[8];
    uint32_t version;
    uint32_t record_bytes;
    uint8_t source_digest[32];
    uint8_t uid[INDEX_UID_BYTES];
    uint32_t text_len;
    char text[INDEX_TEXT_MAX];
    uint8_t zero[INDEX_HEAD_BYTES - 8 - 4 - 4 - 32 - INDEX_UID_BYTES - 4 - INDEX_TEXT_MAX - 4];
    uint32_t crc; /* CRC32C of the preceding fields */
};
static_assert(sizeof(struct index_head) == INDEX_HEAD_BYTES, "the head is a page");

enum { SEGMENT_ALL_BEFORE_LISTED = 1 };
struct segment_head {
    uint32_t magic;
    uint32_t count;
    uint32_t heap_bytes; /* a multiple of 8 */
    uint32_t flags;
    uint64_t first_id;
    uint32_t zero;
    uint32_t crc; /* CRC32C of this head up to here, then of the records and the heap */
};
static_assert(sizeof(struct segment_head) == 32, "no padding");

/* Lengths of the texts in the heap, which follow each other: path, etag, digest. */
struct index_record {
    uint64_t size_bytes;
    int64_t mtime_ns;
    uint64_t generation;
    uint32_t heap_offset;
    uint16_t path_len;
    uint16_t etag_len;
    uint8_t digest_kind;
    uint8_t rank;
    uint16_t source;
    uint8_t zero[4];
};
static_assert(sizeof(struct index_record) == 40, "no padding");

struct index_foot {
    char magic[8];
    uint64_t count;
    uint64_t bytes;
    uint64_t order_offset;
    uint64_t table_offset;
    uint64_t segment_count;
    uint32_t order_width; /* 4; 0: they arrived in order */
    uint32_t order_crc;
    uint32_t table_crc;
    uint8_t zero[32]; /* each segment has a checksum of its own */
    uint32_t crc;
};
static_assert(sizeof(struct index_foot) == 96, "no padding");

struct segment {
    uint64_t offset;
    uint64_t first_id;
};

/* A mapping of twice the size replaces the old one as the file grows. The old one stays mapped until the end,
 * because readers may still use it. */
struct mapping {
    const char *base;
    size_t len;
    struct mapping *older; /* owned */
};

enum { TABLE_BLOCK = 4096, TABLE_BLOCKS = 4096 };

struct index {
    int dir;               /* owned */
    int fd;                /* owned */
    _Atomic bool complete; /* set while others read */
    struct index_head head;
    uint64_t end; /* of the last whole segment */

    /* Readers on any thread use these; the writer sets them in this order. */
    _Atomic(struct mapping *) map;
    struct segment *table[TABLE_BLOCKS]; /* owned */
    _Atomic uint64_t segment_count;
    _Atomic uint64_t count;
    _Atomic uint64_t bytes;

    /* The segment that is being filled. Only the writer uses it. */
    struct index_record *records; /* owned */
    char *heap;                   /* owned */
    uint32_t record_count;
    uint32_t heap_bytes;
    bool in_order;        /* every path so far was greater than the one before it */
    struct str last_path; /* the greatest path so far while in_order; points into the mapping */

    /* The entries that an earlier run listed. */
    uint64_t resumed_count;
    struct str resume_after; /* points into the mapping */

    /* Ids in order of paths: of a complete file, or of the resumed part. NULL: the ids are already in that order. */
    const uint32_t *order;
    uint64_t order_count;
    void *order_map; /* owned: the order of a resumed catalog, in a file of its own */
    size_t order_map_len;
};

uint32_t crc32c_of(const struct str *pieces, size_t count);

/* A zeroed index without a file; it duplicates `dir`. */
must_check int index_new(int dir, struct index **ret, struct err *err);

void index_make_buffers(struct index *x); /* before the first write */

/* Makes all up to `end` readable. */
must_check int index_map(struct index *x, uint64_t end, struct err *err);
must_check int index_table_add(struct index *x, uint64_t offset, uint64_t first_id, struct err *err);
struct segment index_segment(const struct index *x, uint64_t number);
int index_corrupt(const struct index *x, uint64_t offset, const char *why, struct err *err);

/* Reads only the path of an id. */
must_check int index_path(const struct index *x, uint64_t id, struct str *ret, struct err *err);

/* Writes the ids 0 .. count-1 in order of their paths to `fd` at `offset`, 4 bytes each. *ret_crc is the CRC of
 * these bytes. If `unique`, two equal paths are ERR_CORRUPT. */
must_check int index_sort(const struct index *x, uint64_t count, int fd, uint64_t offset, uint32_t *ret_crc,
                          struct err *err);
