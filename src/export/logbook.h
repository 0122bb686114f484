/* SPDX-License-Identifier: Apache-2.0 */
/* logbook.h - what one destination already has of this folder, and which uploads to it are under way. Survives kill -9.
 *
 * A file of lines in <volume>/export/, only ever appended to: each line has its checksum, and reading stops at the
 * first that does not hold: what follows a torn line was never flushed, so nobody relied on it. Nothing in it is needed
 * for being right, only for doing no work twice and for leaving no half upload behind.
 *
 *   - sent: flushed before a verdict says done; lost, the file is compared with the bucket again
 *   - intent: flushed before the store is asked for an upload, so that one whose id we never learnt can be swept
 *   - begun, part, ended: written, not flushed; lost, a part is sent again, or an upload that is gone is aborted again
 *
 * home: its owner's; one at a time. The lock of verdict.h keeps a second process away. */
#pragma once

#include "store/store.h"

/* How a file is known to be the one that was seen: its contents cannot change without its ctime. */
struct stamp {
    uint64_t size_bytes;
    int64_t mtime_ns, ctime_ns;
    uint64_t inode;
};
bool stamp_eq(const struct stamp *a, const struct stamp *b);

enum { LOGBOOK_PARTS_MAX = 10000, LOGBOOK_UID_MAX = 33, LOGBOOK_ETAG_MAX = 128, LOGBOOK_UPLOADS_MAX = 65536 };

struct logbook_part {
    uint64_t size_bytes; /* 0: not confirmed yet */
    struct digest digest;
    char etag[LOGBOOK_ETAG_MAX];
};

/* A multipart upload under way. Borrowed from the logbook; lives until logbook_ended. */
struct logbook_upload {
    char *path;                /* owned */
    char *key;                 /* owned */
    char *id;                  /* owned; the store's; NULL: the store was asked, and its answer is not known */
    char uid[LOGBOOK_UID_MAX]; /* ours, in the object's metadata */
    struct stamp stamp;
    uint64_t part_bytes;
    unsigned part_count;        /* of the whole file */
    struct logbook_part *parts; /* owned; by number - 1 */
};

struct logbook;

/* `destination` is everything that tells two buckets apart; each has a file of its own. */
must_check int logbook_open(int export_dir, struct str destination, struct logbook **ret, struct err *err);
void logbook_free(struct logbook *l);
DEFINE_AUTO(logbook, struct logbook, logbook_free)
#define auto_logbook auto_with(auto_clean_logbook) struct logbook *

/* Is this very state of the file in the bucket? */
bool logbook_has(const struct logbook *l, struct str path, const struct stamp *s);
/* `tag`: object_tag of the object that we wrote; empty: another wrote it, or it is not known. */
must_check int logbook_add(struct logbook *l, struct str path, const struct stamp *s, struct str key, struct str tag,
                           struct err *err);
/* The tag of the object that was last written for the file; empty: none. Borrowed until the next logbook_add. */
struct str logbook_tag(const struct logbook *l, struct str path);
/* The state of the file that was last sent; NULL: none. Borrowed the same. */
const struct stamp *logbook_stamp(const struct logbook *l, struct str path);

struct logbook_upload *logbook_find_upload(const struct logbook *l, struct str path);
size_t logbook_upload_count(const struct logbook *l);
struct logbook_upload *logbook_upload_at(const struct logbook *l, size_t i); /* any order; changes as uploads end */

/* Ownership of nothing passes: strings are copied. An upload of that path must have ended before. */
must_check int logbook_intend(struct logbook *l, struct str path, struct str key, struct str uid, const struct stamp *s,
                              uint64_t part_bytes, struct logbook_upload **ret, struct err *err);
must_check int logbook_begun(struct logbook *l, struct logbook_upload *u, struct str id, struct err *err);
must_check int logbook_part(struct logbook *l, struct logbook_upload *u, unsigned number,
                            const struct logbook_part *part, struct err *err);
/* Cannot fail: where the line cannot be written, the next run aborts what is gone already. */
void logbook_ended(struct logbook *l, struct logbook_upload *own_u);

int logbook_fd(const struct logbook *l);                          /* borrowed: to flush it on a loop */
must_check int logbook_flush(struct logbook *l, struct err *err); /* blocks */
