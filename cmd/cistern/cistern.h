/* SPDX-License-Identifier: Apache-2.0 */
/* cistern.h - what the verbs share: the global flags, and a line of help each. home: main, before any thread. */
#pragma once

#include "cli/opt.h"
#include "store/store.h"
#include "util/glob.h"
#include "util/log.h"
#include "volume/spec.h"
#include <sys/types.h>
#include <time.h>

struct globals {
    bool json;
    bool quiet;
    bool no_progress;
    enum log_level log_level;
    uint64_t retries;    /* 0: the default */
    uint64_t timeout_ns; /* 0: the default; how long passing errors are tried again */
    uint64_t stall_ns;   /* 0: the default; so long without a byte, and a request is given up */
    const char *endpoint;
    const char *profile;
    const char *region;
    const char *ca_file;
    bool anonymous;
    bool path_style;
};

extern struct globals globals;

/* A verb: argv[0] is its name, globals are taken out. Returns an enum exit_code. */
int verb_hydrate(int argc, char **argv);
int verb_ls(int argc, char **argv);
int verb_export(int argc, char **argv);
int verb_hold(int argc, char **argv);
int verb_mount(int argc, char **argv);
int verb_doctor(int argc, char **argv);
int verb_status(int argc, char **argv);
int verb_demo(int argc, char **argv);

/* Parses the verb's own flags and --help. Returns -1 to go on; else the code to end with. `usage` is the text above the
 * flags. */
int verb_begin(const struct opt *table, const char *usage, int *argc, char **argv);

/* Opens a store as the globals say; `uri` is borrowed. */
struct store_options store_defaults(const char *uri);

/* How patiently a volume's requests are made: its source's `retry`, in both directions. */
struct store_retry store_retry_of(const struct spec_source *s);

/* A volume that is being worked on, and how patient its order wants that to be. */
struct follow {
    const char *folder; /* borrowed; NULL: it is none */
    uint64_t looked_ns; /* monotonic */
    ino_t inode;
    struct timespec changed;
};

/* Gives the stores of a run the `retry` that the volume's file has now, once a second at the most. main. */
void follow_retry(struct follow *f, struct store *const *stores, size_t count);

/* Counts what is below the URI: `hydrate --dry-run` and `ls --sum`. Returns an exit code. */
int ls_sum(struct store *s, const char *uri, const struct filter *f, bool fail_if_empty);
