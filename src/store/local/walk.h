/* SPDX-License-Identifier: Apache-2.0 */
/* walk.h - walks the files below a directory in byte order of their paths. home: one thread at a time; it blocks on
 * the disk. Memory: the names of one directory for each level. A directory with more than a million names is read
 * again for each further million. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <sys/stat.h>

#define WALK_HIDDEN ".cistern-uploads" /* at the root: our own temporaries, never listed */

struct local_walk;

struct walk_options {
    int root;               /* an open directory; borrowed */
    struct str prefix;      /* prefix of the whole path; may end within a name */
    struct str start_after; /* only greater paths */
    struct str end_before;  /* only smaller paths; empty: no end */
    bool delimited;         /* do not descend: a directory is an entry whose path ends in '/' */
};

/* Views last until the next call. */
struct walk_entry {
    struct str path;
    struct stat st; /* of the file; not set for a directory */
    bool is_directory;
};

must_check int walk_open(const struct walk_options *o, struct local_walk **ret, struct err *err);
void walk_free(struct local_walk *w);
DEFINE_AUTO(walk, struct local_walk, walk_free)
#define auto_walk auto_with(auto_clean_walk) struct local_walk *

/* 1: *ret is the next entry; 0: end of the walk. */
must_check int walk_next(struct local_walk *w, struct walk_entry *ret, struct err *err);

/* Names seen so far that are not objects: links that leave the root, or lead to a directory or nowhere; sockets,
 * pipes, devices. Also the last of them; a view until the next call. */
unsigned walk_skipped(const struct local_walk *w);
struct str walk_last_skipped(const struct local_walk *w);
