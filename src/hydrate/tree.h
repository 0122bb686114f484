/* SPDX-License-Identifier: Apache-2.0 */
/* tree.h - makes the directories below one root as they are needed, and keeps the last ones open.
 * home: one loop. Holds at most TREE_SLOTS descriptors. */
#pragma once

#include "util/err.h"
#include "util/str.h"

enum { TREE_SLOTS = 64 };

struct tree {
    int root; /* borrowed */
    mode_t mode;
    uid_t uid; /* owner of the directories; 0 and 0: the process */
    gid_t gid;
    struct tree_slot {
        char *path; /* owned */
        size_t len;
        int fd; /* owned */
    } slots[TREE_SLOTS];
};

void tree_init(struct tree *t, int root, mode_t mode);
void tree_done(struct tree *t);

/* Opens the parent directory of `path`, which path_check() accepted, and makes it if needed; follows no link. *ret_dir
 * is the tree's, until its next call; *ret_name points into `path`, which must be NUL-terminated. */
must_check int tree_parent(struct tree *t, const char *path, int *ret_dir, const char **ret_name, struct err *err);
