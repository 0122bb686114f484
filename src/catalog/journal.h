/* SPDX-License-Identifier: Apache-2.0 */
/* journal.h - records which objects and parts are on disk, by the catalog's ids: append-only, every record with a
 * checksum. After a crash of the process all records are trusted; after a reboot, those before the last successful
 * barrier. A failed barrier discards all records since the last successful one, because the kernel may have dropped
 * the pages and reports success next time. A torn end is dropped; damage before a valid record is ERR_CORRUPT. home:
 * any thread, under its own lock (held over write(2), never over fsync). Records are buffered until journal_flush(),
 * which the owner calls many times a second. Memory: a bit an object, and the parts of unfinished objects; parts over
 * the limit are dropped and fetched again. */
#pragma once

#include "catalog/index.h"

#define JOURNAL_FILE "journal"

struct journal;

/* Opens the journal of the catalog `uid` in `dir`, or creates it, and records the start of a run. `boot_id`: 16
 * bytes, NULL: the kernel's. ERR_CORRUPT: it is damaged, or belongs to another catalog. */
must_check int journal_open(int dir, const uint8_t uid[INDEX_UID_BYTES], uint32_t part_bytes, const uint8_t boot_id[16],
                            struct journal **ret, struct err *err);

/* Does `dir` have a journal, and does it belong to the catalog `uid`? */
must_check int journal_is_of(int dir, const uint8_t uid[INDEX_UID_BYTES], bool *ret, struct err *err);

void journal_free(struct journal *j); /* writes nothing: records that were not flushed are lost, as after a crash */
DEFINE_AUTO(journal, struct journal, journal_free)
#define auto_journal auto_with(auto_clean_journal) struct journal *

/* State. */
bool journal_is_complete(const struct journal *j);
int64_t journal_completed_ns(const struct journal *j); /* wall clock; 0: an older program wrote it */
bool journal_is_stale(const struct journal *j);        /* as an earlier run said */
bool journal_is_whole(struct journal *j, uint64_t id);
unsigned journal_runs(const struct journal *j); /* this one included */
/* Was this part of an unfinished object written, with a checksum of this kind (HASH_NONE: any kind)? */
bool journal_has_part(struct journal *j, uint64_t id, uint32_t part, enum hash_kind kind, struct digest *ret);

bool journal_has_parts(struct journal *j, uint64_t id); /* any */

/* Records that the object is complete: written, verified and renamed. Buffered; cannot fail. */
void journal_written(struct journal *j, uint64_t id);
void journal_part_written(struct journal *j, uint64_t id, uint32_t part,
                          const struct digest *digest); /* a CRC or none */
/* Copies the parts of `from_id` to `id`. `from` is the journal of an older catalog, which no other thread uses. */
void journal_adopt_parts(struct journal *j, uint64_t id, struct journal *from, uint64_t from_id);
/* Records for the next run that the source differs from the catalog. Buffered; cannot fail. */
void journal_mark_stale(struct journal *j);
/* Marks the object and its parts as not on disk. Buffered like the others; sync before the object is written again. */
void journal_unwritten(struct journal *j, uint64_t id);
/* The same before the file is removed because another object needs its path. Durable when it returns. */
must_check int journal_void(struct journal *j, uint64_t id, struct err *err);

/* The catalog was cut to `count` objects, so later ids will be assigned to other objects. Durable when it returns. */
must_check int journal_cut(struct journal *j, uint64_t count, struct err *err);

must_check int journal_flush(struct journal *j, struct err *err);
must_check int journal_sync(struct journal *j, struct err *err); /* flushed, and durable */

/* A barrier: begin, sync the files, and report the result. One barrier at a time. After a failed one no record is
 * accepted, and each flush returns `why`. */
must_check int journal_barrier_begin(struct journal *j, struct err *err);
must_check int journal_barrier_succeeded(struct journal *j, struct err *err);
void journal_barrier_failed(struct journal *j, const struct err *why);

/* Records that all objects are complete and durable at `wall_ns`: the last barrier succeeded, and nothing was
 * written since. Durable when it returns. */
must_check int journal_complete(struct journal *j, uint64_t objects, uint64_t bytes, int64_t wall_ns, struct err *err);
