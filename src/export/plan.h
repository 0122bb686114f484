/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - what an export will send: the folder as it is, without what the policy leaves out, what came from the bucket
 * and has not changed, and what is there already. Blocks on the disk. home: whoever made it; frozen once made. */
#pragma once

#include "logbook.h"
#include "pick.h"
#include "util/glob.h"
#include "util/mem.h"
#include "volume/spec.h"
#include "walk.h"

struct plan_options {
    const struct spec_export *policy;
    const struct logbook *logbook;
    int data;         /* the folder; borrowed */
    int64_t since_ns; /* only files that were created or changed after it; INT64_MIN: all */
    void *ctx;
    /* Did the file come from the bucket, and is it as it came? NULL: nobody knows, so it did not. */
    bool (*is_hydrated)(void *ctx, const struct walk_file *f);
    void (*on_skip)(void *ctx, struct str path, const char *why);
    bool (*is_stopped)(void *ctx); /* asked again and again: true ends it with ERR_CANCELLED. NULL: never */
};

struct plan {
    struct arena *names;     /* owned */
    struct pick_file *files; /* owned; sorted by path */
    size_t count, room;
    struct pick pick;
    uint64_t skipped;
    uint64_t hydrated; /* files left out because they came from the bucket */
    /* What could not be looked at: the export fails, since nobody knows what is there. */
    uint64_t trouble_count;
    struct err trouble; /* the first */
    char trouble_path[4096];
};

must_check int plan_make(const struct plan_options *o, struct plan *ret, struct err *err);

/* Looks at a directory of the plan again, when all of it was sent: is every file that is in it now in the logbook, and
 * is none of the plan missing? `marker` is the path of its marker, which is not looked at; has_marker: the plan has
 * that file. ERR_CHANGED, or the error of the disk, names the first thing that is not as it was. */
must_check int plan_check_group(const struct plan_options *o, const struct pick_group *group, struct str marker,
                                bool has_marker, struct err *err);
void plan_done(struct plan *p); /* may run twice */

/* The rules of a policy; strings are borrowed from it. */
struct pick_rules plan_rules(const struct spec_export *policy);
