/* SPDX-License-Identifier: Apache-2.0 */
/* export_state.h - The directory in which an export of DIR records its uploads. The run leaves it out if it is in DIR.
 * home: main. */
#pragma once

#include "util/err.h"

struct export_state {
    int fd;          /* owned; -1: none */
    char *path;      /* owned; NULL: of a volume, whose directory it is */
    size_t kept_len; /* from path: the longest part of it that existed before this run */
};

/* Creates and opens `named`, or a directory of its own for `dir` in the user's state directory. */
must_check int export_state_open(struct export_state *s, const char *named, const char *dir, struct err *err);
/* Unless `keep`, removes what export_state_open() created: without records, no later run needs it. A directory that the
 * user has named is kept, since the user looks for the verdict there. */
void export_state_done(struct export_state *s, bool keep);
