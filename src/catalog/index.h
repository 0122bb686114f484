/* SPDX-License-Identifier: Apache-2.0 */
/* index.h - lists the objects of a source in one mapped file.
 * Every object has an id, in order of arrival, which the journal uses. During the listing the file is
 * 'catalog.partial' and grows by segments with checksums. index_finish() adds the sorted order, syncs the file and
 * renames it to 'catalog'. After a crash index_resume() keeps the entries and returns the key at which the listing
 * continues. home: one writer at a time (add, flush, finish: the caller's lock); readers on any thread, for ids that
 * were flushed. Returned views point into the mapping and live as long as the index. Memory: a page of records, 16
 * bytes a segment, and 16 MiB while sorting. Limits: 2^32 objects, 16.7 M segments, paths and etags of 65,535 bytes. */
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
    uint16_t source; /* which of the prefixes that were listed */
};

/* Identifies a selection: catalogs with the same digest list the same selection of the same source. */
struct index_source {
    uint8_t digest[32];
    struct str text; /* for people; cut at 1,024 bytes */
};

enum { INDEX_UID_BYTES = 16 };

struct index;

/* Creates a catalog in `dir` (kept open by a duplicate) and replaces a partial one. */
must_check int index_create(int dir, const struct index_source *source, struct index **ret, struct err *err);

/* Resumes a partial catalog. ERR_NOT_FOUND: there is no such file. ERR_EXISTS: it lists another source, which the
 * sentence names. A torn end is cut off; other damage is ERR_CORRUPT. */
must_check int index_resume(int dir, const struct index_source *source, struct index **ret, struct err *err);

/* Opens a complete one. `whole` checks every byte (about 2 s a GiB from a disk); else the frame only: every access is
 * bounds-checked in either case. `source` may be NULL. Errors as above. */
must_check int index_open(int dir, const struct index_source *source, bool whole, struct index **ret, struct err *err);
void index_free(struct index *x);
DEFINE_AUTO(index, struct index, index_free)
#define auto_index auto_with(auto_clean_index) struct index *

/* Takes an entry, unless a resumed catalog holds its path already: then *ret_new is false, and the pinned one stays. It
 * has an id and can be read after index_flush(). */
must_check int index_add(struct index *x, const struct index_entry *e, bool *ret_new, struct err *err);

/* Writes what was added. `all_before_listed`: no path smaller than the last one added can still come; a resumed listing
 * then starts behind it. */
must_check int index_flush(struct index *x, bool all_before_listed, struct err *err);

/* A resumed listing starts after this path; empty: at the beginning. */
struct str index_resume_after(const struct index *x);

/* Makes the flushed records survive a power loss. Any thread. */
must_check int index_sync(struct index *x, struct err *err);

/* Sorts, writes the end, makes it durable, gives it its name. Two entries of one path: ERR_CORRUPT, named. */
must_check int index_finish(struct index *x, struct err *err);

/* Releases the memory of the mapped pages; pointers into them stay valid and are read again from the page cache. Any
 * thread; call it now and then, or the resident set grows to the size of the catalog. */
void index_release(const struct index *x);

bool index_is_complete(const struct index *x);
uint64_t index_count(const struct index *x); /* flushed: ids are 0 .. count - 1 */
uint64_t index_bytes(const struct index *x); /* sum of sizes, flushed */
const uint8_t *index_uid(const struct index *x);

must_check int index_get(const struct index *x, uint64_t id, struct index_entry *ret, struct err *err);

/* Of a complete one: the same for two listings that found the same objects, whatever the order in which they came.
 * Paths, sizes, generations, etags and checksums count; times do not. SHA-256; reads all of it, 0.3 s a million. */
must_check int index_manifest(const struct index *x, struct digest *ret, struct err *err);

/* Of a complete one. In order of paths (bytes): the id at a position; the first position whose path is not less than
 * `path` (count: none); the id of a path (ERR_NOT_FOUND). */
must_check int index_at(const struct index *x, uint64_t position, uint64_t *ret_id, struct err *err);
must_check int index_lower_bound(const struct index *x, struct str path, uint64_t *ret_position, struct err *err);
must_check int index_find(const struct index *x, struct str path, uint64_t *ret_id, struct err *err);
