/* SPDX-License-Identifier: Apache-2.0 */
/* index.h - the catalog: what should be here. One file of fixed-size records and a heap of names, mapped, never parsed
 * into nodes.
 *
 * Every object gets an id, in order of arrival; ids are what the journal names. While the listing runs the file is
 * 'catalog.partial' and grows by segments, each with a checksum; index_finish() adds the sorted order, makes it durable
 * and renames it to 'catalog'. After a crash index_resume() keeps what was listed, pinned as it was, and tells from
 * which key the listing must go on.
 *
 * home: one writer at a time (add, flush, finish: the caller's lock); readers on any thread, of ids that were flushed.
 * What readers are given points into the mapping and lives as long as the index. Memory: a page of records, 16 bytes a
 * segment, and 16 MiB while sorting. Limits: 2^32 objects, 16.7 M segments, paths and etags of 65,535 bytes. */
#pragma once

#include "util/err.h"
#include "util/hash.h"
#include "util/str.h"

#define INDEX_FILE "catalog"
#define INDEX_PARTIAL_FILE "catalog.partial"

struct index_entry {
    struct str path; /* below the source's prefix: any bytes; a folder's marker ends in '/' */
    uint64_t size_bytes;
    int64_t mtime_ns;
    uint64_t generation; /* 0: none */
    struct str etag;     /* may be empty */
    struct digest digest;
    uint8_t rank;    /* smaller ones are fetched first */
    uint16_t source; /* which of the prefixes that were listed */
};

/* What was listed: two catalogs of one digest hold the same selection of the same source. */
struct index_source {
    uint8_t digest[32];
    struct str text; /* for people; cut at 1,024 bytes */
};

enum { INDEX_UID_BYTES = 16 };

struct index;

/* Starts a new one in folder `dir` (kept open by a duplicate); a partial one that is there is replaced. */
must_check int index_create(int dir, const struct index_source *source, struct index **ret, struct err *err);

/* Goes on with a partial one. ERR_NOT_FOUND: there is none. ERR_EXISTS: it lists something else, named. A torn end is
 * cut off; anything else that is wrong is ERR_CORRUPT. */
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

/* Behind which path must a resumed listing start? Empty: at the beginning. */
struct str index_resume_after(const struct index *x);

/* Makes what was flushed survive a power loss. Any thread. */
must_check int index_sync(struct index *x, struct err *err);

/* Sorts, writes the end, makes it durable, gives it its name. Two entries of one path: ERR_CORRUPT, named. */
must_check int index_finish(struct index *x, struct err *err);

/* Lets go of the memory through which a large catalog was read; whatever points into it stays good, and is read again
 * from the page cache. Any thread, now and then: else a process comes to hold all that it ever looked at. */
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
