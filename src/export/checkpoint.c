/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the files of each checkpoint that are not yet in the bucket, and decides when its marker may be sent. */
#include "private.h"

static bool wants_marker(const struct export_run *r)
{
    struct pick_rules rules = plan_rules(r->o.policy);
    return rules.marker.len > 0 && rules.by == PICK_BY_DIRECTORY;
}

bool checkpoint_withdraws(const struct export_run *r)
{
    return wants_marker(r) && r->o.policy->conflict != CONFLICT_VERSION;
}

static bool names_marker(const struct export_run *r, const struct pick_group *g, struct str path)
{
    size_t len = g->directory.len;
    return path.len == len + 1 + strlen(r->o.policy->marker) && str_starts(path, g->directory) &&
           path.ptr[len] == '/' && str_ends(path, str_of(r->o.policy->marker));
}

void checkpoint_marker_path(const struct export_run *r, size_t g, struct sbuf *path)
{
    sbuf_init(path, 8192);
    sbuf_add(path, r->plan.pick.groups[g].directory);
    sbuf_addc(path, '/');
    sbuf_adds(path, r->o.policy->marker);
}

static bool has_our_marker(const struct export_run *r, size_t g)
{
    auto_sbuf path;
    struct stamp nothing = {0};
    checkpoint_marker_path(r, g, &path);
    return logbook_has(r->logbook, sbuf_str(&path), &nothing);
}

/* Must the checkpoint's marker still be sent, by the logbook as it was before this run sent anything? */
static bool owes_marker(const struct export_run *r, size_t g)
{
    const struct group_left *left = &r->markers.groups[g];
    if (!wants_marker(r) || !r->plan.pick.groups[g].chosen)
        return false;
    if (left->marker != NO_FILE)
        return !r->plan.files[left->marker].sent;
    return left->files > 0 || !has_our_marker(r, g);
}

static void make_group(struct export_run *r, size_t g)
{
    const struct pick_group *group = &r->plan.pick.groups[g];
    struct group_left *left = &r->markers.groups[g];
    left->marker = NO_FILE;
    for (size_t i = group->first; i < group->end; i++) {
        const struct pick_file *f = &r->plan.files[i];
        if (wants_marker(r) && names_marker(r, group, f->path))
            left->marker = (ssize_t)i;
        else
            left->files += !f->sent;
    }
    if (checkpoint_withdraws(r) && left->files > 0 && left->marker != NO_FILE)
        r->plan.files[left->marker].sent = false; /* a withdrawn marker must be sent again */
    left->owes_marker = owes_marker(r, g);
    if (!left->owes_marker)
        return;
    r->markers.ours += left->marker == NO_FILE;
    if (left->files == 0)
        r->markers.ready[r->markers.ready_count++] = g;
}

void checkpoints_make(struct export_run *r)
{
    size_t n = r->plan.pick.group_count;
    r->markers.groups = xcalloc(n, sizeof *r->markers.groups);
    r->markers.ready = xcalloc(n, sizeof *r->markers.ready);
    for (size_t g = 0; g < n; g++)
        make_group(r, g);
}

void checkpoints_free(struct export_run *r)
{
    for (size_t g = 0; r->markers.groups && g < r->plan.pick.group_count; g++) {
        free(r->markers.groups[g].barred);
        free(r->markers.groups[g].failed);
    }
    free(r->markers.groups);
    free(r->markers.ready);
}

static struct group_left *group_of(const struct upload *u)
{
    uint32_t g = u->file == NO_FILE ? PICK_NO_GROUP : u->run->plan.files[u->file].group;
    return g == PICK_NO_GROUP ? NULL : &u->run->markers.groups[g];
}

bool checkpoint_is_marker(const struct export_run *r, size_t file)
{
    uint32_t g = r->plan.files[file].group;
    return g != PICK_NO_GROUP && r->markers.groups[g].marker == (ssize_t)file;
}

bool checkpoint_makes_marker(const struct export_run *r, struct str path)
{
    const struct pick_group *groups = r->plan.pick.groups;
    for (size_t g = 0; g < r->plan.pick.group_count; g++)
        if (r->markers.groups[g].owes_marker && names_marker(r, &groups[g], path))
            return true;
    return false;
}

static struct err *copy_of(const struct err *why)
{
    struct err *copy = xcalloc(1, sizeof *copy);
    err_copy(copy, why);
    return copy;
}

void checkpoint_settled(const struct upload *u, const struct err *failed)
{
    struct export_run *r = u->run;
    struct group_left *left = group_of(u);
    if (!left || left->marker == u->file)
        return;
    if (failed && !left->failed) {
        left->failed = copy_of(failed);
        err_name(left->failed, u->path);
    }
    size_t g = (size_t)(left - r->markers.groups);
    if (--left->files == 0 && left->owes_marker)
        r->markers.ready[r->markers.ready_count++] = g;
}

void checkpoint_withdrawn(const struct upload *u, const struct err *why_not)
{
    struct export_run *r = u->run;
    struct group_left *left = &r->markers.groups[u->group];
    r->markers.withdrawals--;
    if (why_not) {
        left->barred = copy_of(why_not);
        err_wrap(left->barred, "held back: the old marker of its checkpoint cannot be withdrawn");
        err_advise(left->barred, CIS_MARKER_NOT_WITHDRAWN);
    }
}

const struct err *checkpoint_barred(const struct upload *u)
{
    const struct group_left *left = group_of(u);
    return left ? left->barred : NULL;
}

bool checkpoint_is_others(const struct upload *u)
{
    const struct group_left *left = group_of(u);
    return left && left->is_others;
}

static bool ask_hydrated(void *ctx, const struct walk_file *f)
{
    const struct export_run *r = ctx;
    return r->o.is_hydrated(r->o.ctx, f);
}

struct plan_options run_plan_options(const struct export_run *r)
{
    return (struct plan_options){.policy = r->o.policy,
                                 .logbook = r->logbook,
                                 .data = r->o.data,
                                 .since_ns = r->o.since_ns,
                                 .records = &r->records,
                                 .ctx = (void *)r,
                                 .is_hydrated = r->o.is_hydrated ? ask_hydrated : NULL};
}

/* Files are added, changed and removed during the run: the marker must match the directory as it is now. */
int checkpoint_look_again(const struct export_run *r, size_t g, struct err *err)
{
    auto_sbuf path;
    struct plan_options o = run_plan_options(r);
    checkpoint_marker_path(r, g, &path);
    return plan_check_group(&o, &r->plan.pick.groups[g], sbuf_str(&path), r->markers.groups[g].marker != NO_FILE, err);
}
