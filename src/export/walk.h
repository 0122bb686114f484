/* SPDX-License-Identifier: Apache-2.0 */
/* walk.h - Finds every file below a directory, in no order. home: any thread; blocks on the disk. Uses two
 * descriptors at any depth: it keeps the names of unread directories, and opens them from the top without
 * following links. A directory that is replaced by a link is not followed. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <sys/stat.h>

struct walk_file {
    struct str path; /* below the directory, separated by '/'; any bytes but NUL. Borrowed until the callback returns */
    uint64_t size_bytes;
    int64_t mtime_ns, ctime_ns;
    uint64_t inode;
};

/* Entries that a bucket cannot store, and the records of this export. */
enum walk_skip { WALK_LINK, WALK_FIFO, WALK_SOCKET, WALK_DEVICE, WALK_EMPTY_DIRECTORY, WALK_OTHER_MOUNT, WALK_RECORDS };
const char *walk_skip_name(enum walk_skip why); /* "symbolic link" */

/* Callbacks return 0, or negative with *err set to end the walk. */
struct walk_sink {
    void *ctx;
    int (*on_file)(void *ctx, const struct walk_file *f, struct err *err);
    int (*on_skip)(void *ctx, struct str path, enum walk_skip why, struct err *err);
    /* A file or directory that could not be read: its content is unknown, so the export cannot be complete. */
    int (*on_error)(void *ctx, struct str path, const struct err *why, struct err *err);
    const struct stat *records;    /* of the directory with the records; NULL: it is elsewhere. Borrowed */
    bool (*is_stopped)(void *ctx); /* called for each entry: true ends the walk with ERR_CANCELLED. NULL: never */
};

enum { WALK_DIRECTORIES_BYTES_MAX = 256 << 20 }; /* names of directories still to be read */

/* Walks `dir` below this path; empty: all of it. A file that vanishes during the walk is skipped. */
must_check int walk_directory(int dir, struct str below, const struct walk_sink *sink, struct err *err);
