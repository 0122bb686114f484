/* SPDX-License-Identifier: Apache-2.0 */
/* glob.h - include and exclude patterns over keys and paths. Pure.
 * `*` and `?` stay inside a segment, `**` crosses slashes (and `a/ ** /b`, without the blanks, matches `a/b`),
 * [abc], [a-z], [!a-z], `\x` is x. A pattern without a slash matches the last segment, as in .gitignore. */
#pragma once

#include "util/err.h"
#include "util/str.h"

/* Takes at most time proportional to pattern times text. */
bool glob_match(struct str pattern, struct str text);

/* Is it well formed (brackets closed, no trailing backslash)? ERR_INVALID names the position. */
must_check int glob_check(struct str pattern, struct err *err);

/* Writes a text that the pattern matches, a different one for each variant below GLOB_EXAMPLES: its wildcards stand for
 * other characters, lengths and depths. False: the pattern is malformed, or a set of it has no member. */
enum { GLOB_EXAMPLES = 72 };
bool glob_example(struct str pattern, unsigned variant, struct sbuf *ret);

enum { FILTER_PATTERNS_MAX = 256 };

/* home: frozen once filled. Exclude wins; no include means everything. */
struct filter {
    char **include; /* owned */
    size_t include_count;
    char **exclude; /* owned */
    size_t exclude_count;
};

must_check int filter_add(struct filter *f, bool exclude, struct str pattern, struct err *err);
bool filter_wants(const struct filter *f, struct str path);
void filter_done(struct filter *f);
