/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"
#include "file_lease.h"
#include "util/file.h"
#include "util/json.h"
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>

enum { METRICS_BYTES_MAX = 1 << 20 };

struct planning {
    const struct plan_options *o;
    struct filter filter;
    struct export_plan *plan;
    struct str marker;  /* of plan_check_group(); these may be missing */
    uint64_t confirmed; /* the same: files whose present state is in the bucket */
};

struct pick_rules plan_rules(const struct spec_export *policy)
{
    bool scores = policy->best_file && policy->best_key;
    bool has_rule = scores || policy->latest > 0 || policy->every > 0;
    return (struct pick_rules){.by = has_rule && policy->group == GROUP_FILE ? PICK_BY_FILE : PICK_BY_DIRECTORY,
                               .latest = policy->latest,
                               .every = policy->every,
                               .best = {.file = str_of(policy->best_file),
                                        .key = str_of(policy->best_key),
                                        .greatest = policy->best_order == ORDER_MAX,
                                        .count = scores ? policy->best_count : 0},
                               .marker = str_of(policy->marker)};
}

static int fill_filter(struct filter *f, const struct spec_export *policy, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < policy->include.count && r == 0; i++)
        r = filter_add(f, false, str_of(policy->include.items[i]), err);
    for (size_t i = 0; i < policy->exclude.count && r == 0; i++)
        r = filter_add(f, true, str_of(policy->exclude.items[i]), err);
    return r;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

static bool is_asked_for(const struct planning *g, const struct walk_file *f)
{
    int64_t changed_ns = f->mtime_ns > f->ctime_ns ? f->mtime_ns : f->ctime_ns;
    return filter_wants(&g->filter, f->path) && changed_ns >= g->o->since_ns;
}

static bool is_hydrated(const struct planning *g, const struct walk_file *f)
{
    return g->o->is_hydrated && g->o->is_hydrated(g->o->ctx, f);
}

static bool is_sent(const struct planning *g, const struct walk_file *f)
{
    struct stamp stamp = {f->size_bytes, f->mtime_ns, f->ctime_ns, f->inode};
    return logbook_has(g->o->logbook, f->path, &stamp);
}

static int add_file(void *ctx, const struct walk_file *f, struct err *err)
{
    struct planning *g = ctx;
    struct export_plan *p = g->plan;
    if (!is_asked_for(g, f))
        return 0;
    if (is_hydrated(g, f)) {
        p->hydrated++;
        return 0;
    }
    struct pick_file file = {
        .size_bytes = f->size_bytes, .mtime_ns = f->mtime_ns, .ctime_ns = f->ctime_ns, .inode = f->inode};
    file.sent = is_sent(g, f);
    if (p->count == PICK_FILES_MAX || !arena_dup(p->names, f->path, &file.path))
        return err_set(err, ERR_NO_SPACE, "more than %d files to export", PICK_FILES_MAX);
    if (p->count == p->room) {
        p->room = p->room ? p->room * 2 : 256;
        p->files = xrealloc(p->files, p->room, sizeof *p->files);
    }
    p->files[p->count++] = file;
    return 0;
}

static int add_skip(void *ctx, struct str path, enum walk_skip why, struct err *)
{
    struct planning *g = ctx;
    if (!filter_wants(&g->filter, path))
        return 0;
    g->plan->skipped++;
    if (g->o->on_skip)
        g->o->on_skip(g->o->ctx, path, walk_skip_name(why));
    return 0;
}

static int add_error(void *ctx, struct str path, const struct err *why, struct err *)
{
    struct export_plan *p = ((struct planning *)ctx)->plan;
    if (p->error_count++ == 0) {
        p->error = *why;
        snprintf(p->error_path, sizeof p->error_path, "%.*s", STR_FMT(path));
    }
    return 0;
}

static bool is_stopped(void *ctx)
{
    const struct plan_options *o = ((struct planning *)ctx)->o;
    return o->is_stopped && o->is_stopped(o->ctx);
}

/* ---- metrics ----------------------------------------------------------------------------------------------------- */

struct scoring {
    struct planning *planning;
    const struct pick_rules *rules;
};

/* The directory of the metrics: the checkpoint, or the directory of a checkpoint that is a file. */
static struct str metrics_directory(const struct scoring *s, struct str checkpoint)
{
    return s->rules->by == PICK_BY_DIRECTORY ? checkpoint : path_parent(checkpoint);
}

/* Reads up to METRICS_BYTES_MAX bytes; returns their count, or an error. */
static ssize_t read_metrics(int data, const char *path, char *buf, struct err *err)
{
    struct file_lease h;
    int r = file_lease_open(data, path, false, &h, err);
    if (r < 0)
        return r;
    ssize_t len = pread(h.fd, buf, METRICS_BYTES_MAX, 0);
    if (len < 0)
        len = err_sys(err, errno, "cannot read '%s'", path);
    file_lease_close(&h);
    return len;
}

/* A checkpoint with missing or bad metrics has no score; other rules may still choose it. But a read error is
 * reported: the unreadable metrics may be those of the best checkpoint. */
static bool read_score(void *ctx, const struct pick_group *g, double *ret)
{
    const struct scoring *s = ctx;
    const struct plan_options *o = s->planning->o;
    struct str directory = metrics_directory(s, g->directory);
    char path[PATH_MAX];
    struct err why;
    int n = snprintf(path, sizeof path, "%.*s%s%.*s", STR_FMT(directory), directory.len ? "/" : "",
                     STR_FMT(s->rules->best.file));
    if (n >= (int)sizeof path || is_stopped(s->planning))
        return false;
    auto_mem char *bytes = xcalloc(1, METRICS_BYTES_MAX);
    ssize_t len = read_metrics(o->data, path, bytes, &why);
    if (len < 0 && len != -ERR_NOT_FOUND && len != -ERR_AGAIN) /* none there; being written */
        (void)!add_error(s->planning, str_of(path), &why, ERR_IGNORED);
    auto_json j = NULL;
    return len > 0 && json_parse((struct str){bytes, (size_t)len}, path, &j, ERR_IGNORED) == 0 &&
           json_get_real(j, o->policy->best_key, ret, ERR_IGNORED) == 0 && isfinite(*ret);
}

int plan_make(const struct plan_options *o, struct export_plan *ret, struct err *err)
{
    struct export_plan p = {.names = arena_new(1 << 18, (size_t)4 << 30)};
    struct planning g = {.o = o, .plan = &p};
    struct walk_sink sink = {.ctx = &g,
                             .on_file = add_file,
                             .on_skip = add_skip,
                             .on_error = add_error,
                             .records = o->records,
                             .is_stopped = is_stopped};
    struct pick_rules rules = plan_rules(o->policy);
    struct scoring scoring = {.planning = &g, .rules = &rules};
    int r = fill_filter(&g.filter, o->policy, err);
    if (r == 0)
        r = walk_directory(o->data, STR_NULL, &sink, err);
    if (r == 0)
        r = pick_files(p.files, p.count, &rules, read_score, &scoring, &p.pick, err);
    filter_done(&g.filter);
    if (r == 0 && is_stopped(&g)) /* then not all metrics were read */
        r = err_set(err, ERR_CANCELLED, "stopped while checkpoints were chosen; repeat the command to continue");
    if (r < 0) {
        plan_done(&p);
        return r;
    }
    *ret = p;
    return 0;
}

/* ---- a second walk ----------------------------------------------------------------------------------------------- */

static int check_file(void *ctx, const struct walk_file *f, struct err *err)
{
    struct planning *g = ctx;
    if (!is_asked_for(g, f) || str_eq(f->path, g->marker) || is_hydrated(g, f))
        return 0;
    g->confirmed++;
    if (is_sent(g, f))
        return 0;
    return err_set(err, ERR_CHANGED, "'%.*s' was added or changed while the export ran", STR_FMT(f->path));
}

static int pass_over(void *, struct str path, enum walk_skip why, struct err *err)
{
    return why == WALK_OTHER_MOUNT
               ? err_set(err, ERR_CHANGED, "'%.*s' is another file system, mounted here", STR_FMT(path))
               : 0;
}

static int report_error(void *, struct str, const struct err *why, struct err *err)
{
    return err_copy(err, why);
}

int plan_check_group(const struct plan_options *o, const struct pick_group *group, struct str marker, bool has_marker,
                     struct err *err)
{
    struct planning g = {.o = o, .marker = marker};
    struct walk_sink sink = {.ctx = &g,
                             .on_file = check_file,
                             .on_skip = pass_over,
                             .on_error = report_error,
                             .records = o->records,
                             .is_stopped = is_stopped};
    uint64_t planned = group->end - group->first - has_marker;
    int r = fill_filter(&g.filter, o->policy, err);
    if (r == 0)
        r = walk_directory(o->data, group->directory, &sink, err);
    filter_done(&g.filter);
    if (r == 0 && g.confirmed < planned)
        return err_set(err, ERR_CHANGED, "%" PRIu64 " of %" PRIu64 " files were removed while the export ran",
                       planned - g.confirmed, planned);
    return r;
}

void plan_done(struct export_plan *p)
{
    pick_done(&p->pick);
    free(p->files);
    arena_free(p->names);
    *p = (struct export_plan){0};
}
