/* SPDX-License-Identifier: Apache-2.0 */
/* record.h - Where a volume is staged and published, how often it was published for writing and how far its release
 * is: <volume>/mounts.json. home: the caller that has the volume's lock. mountinfo has the mounts that exist; this
 * file has the mounts that were requested. A repeated request then gets the same answer after a restart. Created with
 * the volume, written before a mount is made and after it is gone: a crash leaves an entry too many, never one too
 * few. */
#pragma once

#include "pool/volume.h"
#include "spec/release_state.h"
#include "util/err.h"
#include "util/str.h"

#define RECORD_FILE "mounts.json"

enum { RECORD_TARGETS_MAX = 64 };

struct record_target {
    char *path; /* owned */
    bool read_only;
};

struct record {
    char *staged; /* owned; where it is mounted: the staging path, or RECORD_BIND in it; or NULL */
    bool fuse;    /* mounted through the keeper; else a bind of data/ */
    bool read_only;
    bool has_group;
    uint32_t group;
    char *context;   /* owned; the SELinux label, or NULL */
    uint64_t writes; /* a new number for each publish for writing. 0: never written, so nothing is to be exported */
    enum release_stage release; /* how far its release is */
    int64_t unpublished_ns;     /* wall clock: when the last target was unpublished; 0: published, or never was */
    struct record_target targets[RECORD_TARGETS_MAX];
    size_t target_count;
    bool is_new; /* there is no file */
    /* The file is damaged or gone while the volume is mounted: the paths are not known, see record_of(). */
    bool is_lost;
};

void record_done(struct record *r); /* may run twice */
#define auto_record auto_with(record_done) struct record

/* Reads the record; without a file it is empty. ERR_CORRUPT names the defect. `dir` is the volume's directory. */
must_check int record_read(int dir, struct record *ret, struct err *err);
/* The same, but succeeds for a damaged or missing file. A damaged one counts as written, and as unpublished at the
 * file's mtime. A missing one counts as written unless data/ is known to be empty: files that may not be exported yet
 * are exported. `writes` is a number that no verdict has. While the volume is mounted the record is_lost: the caller
 * that unpublishes or unstages it knows the path. The next record_write() repairs the file. */
must_check int record_of(const struct volume *v, struct record *ret, struct err *err);
must_check int record_write(int dir, const struct record *r, struct err *err); /* durable */
int64_t record_changed_ns(int dir);                                            /* wall clock; 0: there is no record */

/* The path of a bind of data/: a directory in the staging path. The kubelet unstages only when no other mount has
 * the device and the root of the mount at the staging path. The mount of an image on data/ has both. */
#define RECORD_BIND "/bind"
bool record_is_staged_at(const struct record *r, const char *staging_path);

struct record_target *record_target(struct record *r, const char *path); /* or NULL */
must_check int record_add(struct record *r, const char *path, bool read_only, struct err *err);
void record_count_write(
    struct record *r); /* counts one more publish for writing, with a number that was never used before */
void record_remove(struct record *r, const char *path);
