/* SPDX-License-Identifier: Apache-2.0 */
/* index.h - lists the objects of a source in one mapped file.
 * Every object has an id, in order of arrival, which the journal uses. During the listing the file is
 * 'catalog.partial' and grows by segments with checksums. index_finish() adds the sorted order, syncs the file and
 * renames it to 'catalog'. After a crash index_resume() keeps the entries and returns the key at which the listing
 * continues. home: one writer at a time (add, flush, finish: the caller's lock); readers on any thread, for ids that
 * were flushed. Returned views point into the mapping and live as long as the index. Memory: a page of records, 16
 * bytes a segment, and 16 MiB while sorting. Limits: 2^32 objects, 16.7 M segments, paths and etags of 65,535 bytes.
 * Code: write.c creates, fills and finishes a catalog, open.c opens or resumes one, manifest.c makes the manifest,
 * index.c has the rest. */
#pragma once

#include "util/err.h"
#include "util/hash.h"
#include "util/str.h"

#define INDEX_FILE "catalog"
#define INDEX_PARTIAL_FILE "catalog.partial"

struct index_entry {
    struct str path; /* below the source's prefix: any bytes; a directory's marker ends in '/' */
    uint64_t size_bytes;
    int64_t mtime_ns;
    uint64_t generation; /* 0: none */
    struct str etag;     /* may be empty */
    struct digest digest;
    uint8_t rank;    /* smaller ones are fetched first */
    uint16_t source; /* index of the listed prefix */
};

/* Identifies a selection: catalogs with the same digest list the same selection of the same source. */
struct index_source {
    uint8_t digest[32];
    struct str text; /* for people; cut at 1,024 bytes */
};

enum { INDEX_UID_BYTES = 16 };

struct index;

/* Creates a catalog in `dir`, which it duplicates, and replaces a partial catalog. */
must_check int index_create(int dir, const struct index_source *source, struct index **ret, struct err *err);

/* Resumes a partial catalog. ERR_NOT_FOUND: there is no such file. ERR_EXISTS: it lists another source, which the
 * sentence names. A torn end is cut off; other damage is ERR_CORRUPT. */
must_check int index_resume(int dir, const struct index_source *source, struct index **ret, struct err *err);

/* Opens a complete catalog. `whole` checks every byte (about 2 s a GiB from a disk); otherwise only head, table
 * and foot are checked. Every access is bounds-checked in either case. `source` may be NULL. Errors as above. */
must_check int index_open(int dir, const struct index_source *source, bool whole, struct index **ret, struct err *err);
void index_free(struct index *x);
DEFINE_AUTO(index, struct index, index_free)
#define auto_index auto_with(auto_clean_index) struct index *

/* Adds an entry. If a resumed catalog has its path already, *ret_new is false and the old entry stays. The entry
 * has an id, and can be read after index_flush(). */
must_check int index_add(struct index *x, const struct index_entry *e, bool *ret_new, struct err *err);

/* Writes the added entries. `all_before_listed`: every path up to the last added one has been listed; a resumed
 * listing then starts after it. */
must_check int index_flush(struct index *x, bool all_before_listed, struct err *err);

/* A resumed listing starts after this path; empty: at the beginning. */
struct str index_resume_after(const struct index *x);

/* Makes the flushed records survive a power loss. Any thread. */
must_check int index_sync(struct index *x, struct err *err);

/* Sorts, writes and syncs the end of the file, and renames it to 'catalog'. Two entries with one path
 * (CIS_KEY_LISTED_TWICE) are ERR_CORRUPT if one prefix listed both, and ERR_INVALID if two prefixes map to it. */
must_check int index_finish(struct index *x, struct err *err);

/* Releases the memory of the mapped pages; pointers into them stay valid and are read again from the page cache.
 * Any thread. Call it regularly, or the resident set grows to the size of the catalog. */
void index_release(const struct index *x);

bool index_is_complete(const struct index *x);
uint64_t index_count(const struct index *x); /* count of flushed entries: their ids are 0 .. count - 1 */
uint64_t index_bytes(const struct index *x); /* sum of sizes, flushed */
const uint8_t *index_uid(const struct index *x);

must_check int index_get(const struct index *x, uint64_t id, struct index_entry *ret, struct err *err);

/* The digest of a complete catalog: equal for two listings that found the same objects in any order. Paths, sizes,
 * generations, etags and checksums count; times do not. SHA-256; reads the whole catalog, 0.3 s for a million
 * objects. */
must_check int index_manifest(const struct index *x, struct digest *ret, struct err *err);

/* For a complete catalog, in the byte order of paths: the id at a position; the first position whose path is not
 * less than `path` (count: none); the id of a path (ERR_NOT_FOUND); whether a path begins with `prefix`. */
must_check int index_at(const struct index *x, uint64_t position, uint64_t *ret_id, struct err *err);
must_check int index_lower_bound(const struct index *x, struct str path, uint64_t *ret_position, struct err *err);
must_check int index_find(const struct index *x, struct str path, uint64_t *ret_id, struct err *err);
must_check int index_has_prefix(const struct index *x, struct str prefix, bool *ret, struct err *err);
