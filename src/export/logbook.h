/* SPDX-License-Identifier: Apache-2.0 */
/* logbook.h - Records which files of this directory a destination has, the uploads in progress, and files of which the
 * disk lost data. Survives kill -9.
 *
 * A file of lines in <volume>/export/, only appended to. Each line has a checksum, and reading stops at the first bad
 * one: lines after a torn one were never flushed, so nothing depends on them. The logbook avoids double work and
 * orphaned uploads; correctness does not depend on it, except for lost files: the kernel reports a loss once.
 *
 *   - sent: flushed before a verdict says done; if lost, the file is compared with the bucket again
 *   - lost: flushed at once
 *   - intent: flushed before the store is asked for an upload, so that an upload with an unknown ID can be swept
 *   - begun, part, ended: written, not flushed; if lost, a part is sent again, or a finished upload aborted again
 *
 * home: its owner's; one at a time. The lock of verdict.h excludes other processes. */
#pragma once

#include "store/store.h"

/* Identifies a state of a file: its content cannot change without its ctime. */
struct stamp {
    uint64_t size_bytes;
    int64_t mtime_ns, ctime_ns;
    uint64_t inode;
};
bool stamp_eq(const struct stamp *a, const struct stamp *b);

enum { LOGBOOK_TOKEN_MAX = 33, LOGBOOK_ETAG_MAX = 128 };

struct logbook_part {
    uint64_t size_bytes; /* 0: not confirmed yet */
    struct digest digest;
    char etag[LOGBOOK_ETAG_MAX];
};

/* A running multipart upload. Borrowed from the logbook; lives until logbook_ended. */
struct logbook_upload {
    char *path;                    /* owned */
    char *key;                     /* owned */
    char *upload_id;               /* owned; NULL: the store was asked for an upload, but no answer is recorded */
    char token[LOGBOOK_TOKEN_MAX]; /* the idempotency token, in the object's metadata */
    struct stamp stamp;
    uint64_t part_bytes;
    unsigned part_count;        /* of the whole file */
    struct logbook_part *parts; /* owned; by number - 1 */
};

struct logbook;

/* `destination` identifies a bucket; each has its own file. */
must_check int logbook_open(int export_dir, struct str destination, struct logbook **ret, struct err *err);
void logbook_free(struct logbook *l);
DEFINE_AUTO(logbook, struct logbook, logbook_free)
#define auto_logbook auto_with(auto_clean_logbook) struct logbook *

/* Is this state of the file in the bucket? */
bool logbook_has(const struct logbook *l, struct str path, const struct stamp *s);
/* `tag`: store_object_tag of the object that we wrote; empty: another writer's object, or unknown. */
must_check int logbook_add(struct logbook *l, struct str path, const struct stamp *s, struct str key, struct str tag,
                           struct err *err);
/* The tag of the object that was last written for the file; empty: none. Borrowed until the next logbook_add. */
struct str logbook_tag(const struct logbook *l, struct str path);
/* The state in which the file was last sent; NULL: never. Borrowed until the next logbook_add. */
const struct stamp *logbook_stamp(const struct logbook *l, struct str path);

/* The disk lost data of this state of the file. Durable when it returns 0. */
must_check int logbook_add_lost(struct logbook *l, struct str path, const struct stamp *s, struct err *err);
/* The last state of the file of which data was lost; NULL: none. By inode, since the file may have been renamed. Inode
 * 0: the time of a loss whose file is not known. Borrowed until the next logbook_add_lost. */
const struct stamp *logbook_lost(const struct logbook *l, uint64_t inode);

struct logbook_upload *logbook_find_upload(const struct logbook *l, struct str path);
bool logbook_is_empty(const struct logbook *l);
size_t logbook_upload_count(const struct logbook *l);
struct logbook_upload *logbook_upload_at(const struct logbook *l, size_t i); /* any order; changes as uploads end */

/* Strings are copied. An earlier upload of that path must have ended. */
must_check int logbook_intend(struct logbook *l, struct str path, struct str key, struct str token,
                              const struct stamp *s, uint64_t part_bytes, struct logbook_upload **ret, struct err *err);
must_check int logbook_begun(struct logbook *l, struct logbook_upload *u, struct str upload_id, struct err *err);
must_check int logbook_part(struct logbook *l, struct logbook_upload *u, unsigned number,
                            const struct logbook_part *part, struct err *err);
/* Cannot fail: if the line cannot be written, the next run aborts the finished upload again. */
void logbook_ended(struct logbook *l, struct logbook_upload *own_u);

int logbook_fd(const struct logbook *l);                          /* borrowed: the descriptor, to flush it on a loop */
must_check int logbook_flush(struct logbook *l, struct err *err); /* blocks */
