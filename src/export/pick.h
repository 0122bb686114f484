/* SPDX-License-Identifier: Apache-2.0 */
/* pick.h - Chooses the files to export, and finds the checkpoints among them. Pure: reads no disk.
 *
 * A checkpoint is a directory (group: directory) or a file (group: file). The checkpoint of a file is the outermost
 * directory above it that has `best.file` or the marker, or is named like a step: a number, or a training word and a
 * number (900, step-900, checkpoint_3). Without such a directory, it is the outermost directory above it that has a
 * file itself. Outermost, because half a checkpoint is useless. A file at the top, or beside directories that are
 * checkpoints, belongs to none: it is always sent.
 *
 * Each rule looks at the checkpoints of one directory, in the order of their newest file. The union of all rules is
 * sent, or the newest checkpoint if they choose none. */
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
    uint64_t every;  /* every Nth checkpoint in order; 0: no such rule */
    struct {
        struct str file; /* "metrics.json", in the checkpoint's directory; for files: beside it */
        struct str key;  /* "eval_loss"; dots go into objects */
        bool greatest;   /* order: max */
        uint64_t count;  /* 0: no such rule */
    } best;
    struct str marker; /* empty: none */
};

struct pick_group {
    struct str directory; /* path of the directory, or of the file; borrowed from the files */
    size_t first, end;    /* its files, once sorted by path: [first, end) */
    int64_t newest_ns;    /* mtime of its newest file */
    bool chosen;
    bool has_score;
    double score;
};

struct pick {
    struct pick_group *groups; /* owned */
    size_t group_count;
};

/* The number at `key` in the metrics of this checkpoint; false if it has none. Called only for a `best` rule. */
typedef bool pick_score(void *ctx, const struct pick_group *g, double *ret);

/* Sorts `files` by path and sets their `out` fields. Without a rule all files are chosen. */
must_check int pick_files(struct pick_file *files, size_t count, const struct pick_rules *rules, pick_score *score,
                          void *ctx, struct pick *ret, struct err *err);
void pick_done(struct pick *p);

/* The file of this path among sorted ones; NULL: it is missing. */
const struct pick_file *pick_find(const struct pick_file *files, size_t count, struct str path);

/* Is `name` (one segment) a number, or a word of training and a number? */
bool group_is_step_name(struct str name);
