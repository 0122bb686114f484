/* SPDX-License-Identifier: Apache-2.0 */
/* cistern.h - What the verbs share (share.c): global flags, parsing, stores. home: main, before any
 * thread. */
#pragma once

#include "cli/opt.h"
#include "spec/spec.h"
#include "store/store.h"
#include "util/glob.h"
#include "util/log.h"
#include <signal.h>
#include <sys/types.h>
#include <time.h>

struct globals {
    bool json;
    bool quiet;
    bool verbose;
    bool no_progress;
    const char *log_level_text; /* of --log-level; NULL: the default */
    enum log_level log_level;
    uint64_t retries;    /* 0: the default */
    uint64_t timeout_ns; /* 0: the default; how long temporary errors are retried */
    uint64_t stall_ns;   /* 0: the default; read by request_stall_ns() */
    const char *endpoint;
    const char *profile;
    const char *region;
    const char *ca_file;
    bool anonymous;
    bool path_style;
    bool requester_pays;
    bool recursive; /* without effect: a copy takes the whole tree */
    const char *billing_project;
};

extern struct globals globals;
extern const struct opt global_opts[];

/* A verb: argv[0] is its name, and the global flags are removed. Returns an enum exit_code. */
int verb_hydrate(int argc, char **argv);
int verb_ls(int argc, char **argv);
int verb_export(int argc, char **argv);
int verb_hold(int argc, char **argv);
int verb_probe(int argc, char **argv);
int verb_mount(int argc, char **argv);
int verb_doctor(int argc, char **argv);
int verb_status(int argc, char **argv);
int verb_demo(int argc, char **argv);

int usage_error(const struct err *err); /* prints it; returns EXIT_USAGE */

/* Parses the verb's flags and --help. Returns -1 to go on; else the exit code. `usage` is the text above the flags. */
int verb_begin(const struct opt *table, const char *usage, int *argc, char **argv);

/* Refuses flags of `table`, except those named in `taken` (NULL ends it), and those of retries: a volume has its own
 * policy, and a verdict for release certifies the whole of it. */
must_check int check_volume_flags(const struct opt *table, const char *const *taken, struct err *err);

/* --include and --exclude, as every verb has them. */
#define FILTER_OPTS(include, exclude)                                                                                  \
    {"include", 0, OPT_PATTERNS, &(include), "GLOB", "take only matching paths (repeatable; ** crosses slashes)"},     \
    {                                                                                                                  \
        "exclude", 0, OPT_PATTERNS, &(exclude), "GLOB", "skip matching paths, also of --include (repeatable)"          \
    }
/* Names of flags of a copy in other tools. */
#define COPY_HABITS(concurrency)                                                                                       \
    {"transfers", 0, OPT_U64, &(concurrency), "N", NULL, .least = 1, .most = 512},                                     \
        {"numworkers", 0, OPT_U64, &(concurrency), "N", NULL, .least = 1, .most = 512},                                \
    {                                                                                                                  \
        "recursive", 'r', OPT_FLAG, &globals.recursive, NULL, NULL                                                     \
    }
must_check int filter_fill(struct filter *f, const char *const *include, size_t include_count,
                           const char *const *exclude, size_t exclude_count, struct err *err);

/* Refuses a URI, a Windows path, an unexpanded ~, '-' and an empty text in place of DIR, in a copy between `from` and
 * `to`. */
must_check int check_dir_argument(const char *dir, const char *from, const char *to, struct err *err);

/* The same for `export DIR URI`, and swapped arguments. Also refuses a wildcard and a blank at the end of the URI: a
 * key may have both, but here they are mistakes. */
must_check int check_export_ends(const char *dir, const char *uri, struct err *err);

/* The index of `text` among `names`; a NULL text leaves *ret as it is. */
must_check int parse_choice(const char *flag, const char *text, const char *const *names, size_t count, unsigned *ret,
                            struct err *err);

/* The signals that end a verb which cleans up first. SIGHUP only if nohup does not ignore it: a blocked signal is kept
 * though it is ignored. */
sigset_t ending_signals(void);

/* --since as wall clock; NULL: INT64_MIN. */
must_check int parse_since(const char *since, int64_t *ret, struct err *err);

/* How long a request may receive almost nothing: --stall, or `usual_ns`; at most --timeout, so that one silent request
 * does not outlast it. */
uint64_t request_stall_ns(uint64_t usual_ns);

/* Makes the options of a store from the global flags; `uri` is borrowed. */
struct store_options store_defaults(const char *uri);

/* A volume's retry policy, for hydration and export. */
struct store_retry store_retry_of(const struct spec_source *s);

/* volume_open() of the directory that a user gave with --volume. */
struct volume;
must_check int open_named_volume(const char *directory, struct volume **ret, struct err *err);

/* Reads a volume's retry policy again when its file changes. */
struct retry_reload {
    const char *volume_dir; /* borrowed; NULL: not a volume */
    uint64_t looked_ns;     /* monotonic */
    ino_t inode;
    struct timespec changed;
};

/* Describes a retry of one of the stores; NULL: none is due. */
enum { RETRY_TEXT_MAX = ERR_TEXT_MAX + 64 };
const char *retry_text(struct store *const *stores, size_t count, char buf[RETRY_TEXT_MAX]);

uint64_t retry_count(struct store *const *stores, size_t count);

/* Applies the volume's current retry policy to the stores of a run, at most once a second. main. */
void retry_reload(struct retry_reload *f, struct store *const *stores, size_t count);

/* Counts the objects below the URI and estimates their hydration: `hydrate --dry-run`. Returns an exit code. */
struct estimate_terms;
int ls_sum(struct store *s, const char *uri, const struct filter *f, bool allow_empty,
           const struct estimate_terms *terms);
