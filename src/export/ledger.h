/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.h - what one destination already has of this folder, and which uploads to it are under way. Survives kill -9.
 *
 * A file of lines in <volume>/export/, only ever appended to: each line has its checksum, and reading stops at the
 * first that does not hold: what follows a torn line was never flushed, so nobody relied on it. Nothing in it is needed
 * for being right, only for doing no work twice and for leaving no half upload behind: sent     flushed before a
 * verdict says done; lost, the file is compared with the bucket again intent   flushed before the store is asked for an
 * upload: an upload whose id we never learnt can be swept begun, part, ended   written, not flushed: lost, a part is
 * sent again, or an upload that is gone is aborted again
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

enum { LEDGER_PARTS_MAX = 10000, LEDGER_UID_MAX = 33, LEDGER_ETAG_MAX = 128, LEDGER_UPLOADS_MAX = 65536 };

struct ledger_part {
    uint64_t size_bytes; /* 0: not confirmed yet */
    struct digest digest;
    char etag[LEDGER_ETAG_MAX];
};

/* A multipart upload under way. Borrowed from the ledger; lives until ledger_ended. */
struct ledger_upload {
    char *path;               /* owned */
    char *key;                /* owned */
    char *id;                 /* owned; the store's; NULL: the store was asked, and its answer is not known */
    char uid[LEDGER_UID_MAX]; /* ours, in the object's metadata */
    struct stamp stamp;
    uint64_t part_bytes;
    unsigned part_count;       /* of the whole file */
    struct ledger_part *parts; /* owned; by number - 1 */
};

struct ledger;

/* `destination` is everything that tells two buckets apart; each has a file of its own. */
must_check int ledger_open(int export_dir, struct str destination, struct ledger **ret, struct err *err);
void ledger_free(struct ledger *l);
DEFINE_AUTO(ledger, struct ledger, ledger_free)
#define auto_ledger auto_with(auto_clean_ledger) struct ledger *

/* Is this very state of the file in the bucket? */
bool ledger_has(const struct ledger *l, struct str path, const struct stamp *s);
must_check int ledger_add(struct ledger *l, struct str path, const struct stamp *s, struct str key, struct err *err);

struct ledger_upload *ledger_find_upload(const struct ledger *l, struct str path);
size_t ledger_upload_count(const struct ledger *l);
struct ledger_upload *ledger_upload_at(const struct ledger *l, size_t i); /* any order; changes as uploads end */

/* Ownership of nothing passes: strings are copied. An upload of that path must have ended before. */
must_check int ledger_intend(struct ledger *l, struct str path, struct str key, struct str uid, const struct stamp *s,
                             uint64_t part_bytes, struct ledger_upload **ret, struct err *err);
must_check int ledger_begun(struct ledger *l, struct ledger_upload *u, struct str id, struct err *err);
must_check int ledger_part(struct ledger *l, struct ledger_upload *u, unsigned number, const struct ledger_part *part,
                           struct err *err);
/* Cannot fail: where the line cannot be written, the next run aborts what is gone already. */
void ledger_ended(struct ledger *l, struct ledger_upload *own_u);

int ledger_fd(const struct ledger *l);                          /* borrowed: to flush it on a loop */
must_check int ledger_flush(struct ledger *l, struct err *err); /* blocks */
