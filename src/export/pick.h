/* SPDX-License-Identifier: Apache-2.0 */
/* pick.h - which of the files found are worth the bucket, and which of them belong together. Pure: reads no disk.
 *
 * A checkpoint is a folder (group: directory) or a file (group: file).
 * The folder of a file's checkpoint is the outermost folder above it that holds `best.file` or the marker, or whose
 * name is a number or a word of training and a number (900, step-900, checkpoint_3); where no folder above it does, the
 * outermost one that holds a file itself. Outermost, because half a checkpoint is worth nothing. A file at the top, or
 * beside folders that are checkpoints, belongs to none: it is always sent.
 * Rules look at checkpoints that lie in the same folder, in the order of their newest file; their union is sent, or the
 * newest one where they choose none. */
#pragma once

#include "util/err.h"
#include "util/str.h"

struct pick_file {
    struct str path; /* borrowed */
    uint64_t size_bytes;
    int64_t mtime_ns, ctime_ns;
    uint64_t inode;
    uint32_t group; /* out: index of its checkpoint, or PICK_NO_GROUP */
    bool sent;      /* in: already in the bucket, and not changed since */
    bool chosen;    /* out */
};

enum { PICK_NO_GROUP = UINT32_MAX, PICK_FILES_MAX = 16 << 20 };

enum pick_by { PICK_BY_DIRECTORY, PICK_BY_FILE };

/* home: frozen once filled. Strings are borrowed; empty means not given. */
struct pick_rules {
    enum pick_by by;
    uint64_t latest; /* the newest N; 0: no such rule */
    uint64_t every;  /* of the checkpoints in order, each Nth; 0: no such rule */
    struct {
        struct str file; /* "metrics.json", in the checkpoint's folder; for files: beside it */
        struct str key;  /* "eval_loss"; dots go into objects */
        bool greatest;   /* order: max */
        uint64_t count;  /* 0: no such rule */
    } best;
    struct str marker; /* empty: none */
};

struct pick_group {
    struct str folder; /* path of the folder, or of the file; borrowed from the files */
    size_t first, end; /* its files, once sorted by path: [first, end) */
    int64_t newest_ns; /* mtime of its newest file */
    bool chosen;
    bool has_score;
    double score;
};

struct pick {
    struct pick_group *groups; /* owned */
    size_t group_count;
};

/* The number at `key` in the metrics of this checkpoint; false if there is none. Not asked without a `best` rule. */
typedef bool pick_score(void *ctx, const struct pick_group *g, double *ret);

/* Sorts `files` by path and fills in what is out. Without a rule everything is chosen. */
must_check int pick_files(struct pick_file *files, size_t count, const struct pick_rules *rules, pick_score *score,
                          void *ctx, struct pick *ret, struct err *err);
void pick_done(struct pick *p);
