/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - Selects the files that an export sends: leaves out those that the policy excludes, unchanged hydrated files,
 * and files that are in the bucket already. Blocks on the disk. home: its owner; frozen once made. */
#pragma once

#include "logbook.h"
#include "pick.h"
#include "spec/spec.h"
#include "util/glob.h"
#include "util/mem.h"
#include "walk.h"

struct plan_options {
    const struct spec_export *policy;
    const struct logbook *logbook;
    int data;                   /* the directory; borrowed */
    int64_t since_ns;           /* only files that were created or changed after it; INT64_MIN: all */
    const struct stat *records; /* of the directory with the run's records, which is skipped; NULL: none. Borrowed */
    void *ctx;
    /* Did a hydration write the file, and is it unchanged since? NULL: unknown, so the file counts as new. */
    bool (*is_hydrated)(void *ctx, const struct walk_file *f);
    void (*on_skip)(void *ctx, struct str path, const char *why);
    bool (*is_stopped)(void *ctx); /* called repeatedly: true ends the plan with ERR_CANCELLED. NULL: never */
};

struct export_plan {
    struct arena *names;     /* owned */
    struct pick_file *files; /* owned; sorted by path */
    size_t count, room;
    struct pick pick;
    uint64_t skipped;
    uint64_t hydrated; /* unchanged hydrated files, which are not sent */
    /* Files that could not be examined: the export fails, since their content is unknown. */
    uint64_t error_count;
    struct err error; /* the first */
    char error_path[4096];
};

must_check int plan_make(const struct plan_options *o, struct export_plan *ret, struct err *err);

/* Examines a directory of the plan again after all its files were sent: each of its present files must be in the
 * logbook, and no file of the plan may be missing. `marker` is the path of its marker, which is skipped;
 * has_marker: the plan has that file. ERR_CHANGED, or the error of the disk, names the first difference. */
must_check int plan_check_group(const struct plan_options *o, const struct pick_group *group, struct str marker,
                                bool has_marker, struct err *err);
void plan_done(struct export_plan *p); /* may run twice */

/* The rules of a policy; strings are borrowed from it. */
struct pick_rules plan_rules(const struct spec_export *policy);
