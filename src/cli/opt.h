/* SPDX-License-Identifier: Apache-2.0 */
/* opt.h - parses and checks the flags of a verb by a table, and prints its --help.
 * home: main, before any thread. Strings are borrowed from argv. */
#pragma once

#include "util/err.h"
#include "util/str.h"

enum opt_kind {
    OPT_FLAG,     /* bool *: --name sets it, --no-name clears it */
    OPT_TEXT,     /* const char ** */
    OPT_U64,      /* uint64_t * */
    OPT_BYTES,    /* uint64_t *: 512, 1.5Gi, 2T, 2TB */
    OPT_DURATION, /* uint64_t * in nanoseconds: 250ms, 30s, 1h30m */
    OPT_LIST,     /* struct opt_list *: may be repeated */
    OPT_PATTERNS, /* likewise; globs of relative paths */
};

struct opt {
    const char *name; /* without dashes; NULL ends the table */
    char letter;      /* 'l' for -l, 0 for none */
    enum opt_kind kind;
    void *target;
    const char *value_name; /* in --help: "N", "GLOB"; NULL for flags */
    const char *help;       /* one line; NULL: not listed in --help, another name for a listed flag */
    uint64_t least, most;   /* of a number, or of the length of a text; most 0: no limit */
};

enum { OPT_LIST_MAX = 256 };
struct opt_list {
    const char *items[OPT_LIST_MAX];
    size_t count;
};

/* Removes the flags of `table` from argv, in any position; the other arguments stay in argv[0 .. *argc), in order. "--"
 * ends the flags and is removed. `others_may_follow` keeps unknown flags: main parses the global flags first. Otherwise
 * an unknown flag is ERR_INVALID, and the sentence names the nearest one of `table` and of `parsed`, whose flags are
 * removed already (NULL: none); so is a number out of its range. */
must_check int opt_parse(const struct opt *table, const struct opt *parsed, bool others_may_follow, int *argc,
                         char **argv, struct err *err);

/* Refuses an argument that begins with a long dash: pages and word processors make one of "-" and "--". */
must_check int opt_check_dash(const char *arg, struct err *err);

/* Refuses a flag of `table` that has a value and is not among the names in `taken`, which end with NULL. A flag whose
 * value is 0 counts as not given; one that --help does not list is another name for a listed one. ERR_INVALID: "--name
 * <why>". */
must_check int opt_refuse_others(const struct opt *table, const char *const *taken, const char *why, struct err *err);

/* Appends "  -l, --long N        <help>", one line for each flag. */
void opt_help(const struct opt *table, struct sbuf *b);
