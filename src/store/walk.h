/* SPDX-License-Identifier: Apache-2.0 */
/* walk.h - the files below a folder in byte order of their whole paths, one after the other.
 * home: one thread at a time; it blocks on the disk. Memory: the names of one folder a level, and of a huge folder a
 * run of a million of them; a folder with more is read again for each further run. */
#pragma once

#include "util/err.h"
#include "util/str.h"
#include <sys/stat.h>

#define WALK_HIDDEN ".cistern-uploads" /* at the root: our own temporaries, never listed */

struct walk;

struct walk_options {
    int root;               /* an open folder; borrowed */
    struct str prefix;      /* of the whole path, also in the middle of a name */
    struct str start_after; /* only greater paths */
    struct str end_before;  /* only smaller paths; empty: no end */
    bool folders;           /* do not descend: a folder is an entry whose path ends in '/' */
};

/* Views last until the next call. */
struct walk_entry {
    struct str path;
    struct stat st; /* of the file; not set for a folder */
    bool is_folder;
};

must_check int walk_open(const struct walk_options *o, struct walk **ret, struct err *err);
void walk_free(struct walk *w);
DEFINE_AUTO(walk, struct walk, walk_free)
#define auto_walk auto_with(auto_clean_walk) struct walk *

/* 1: *ret is the next; 0: there are no more. */
must_check int walk_next(struct walk *w, struct walk_entry *ret, struct err *err);

/* Names seen so far that are no objects: links that lead out of the root, to a folder or to nothing; sockets, pipes,
 * devices. And the last of them; a view until the next call. */
unsigned walk_skipped(const struct walk *w);
struct str walk_last_skipped(const struct walk *w);
